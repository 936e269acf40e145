"""The window on an endless list: bounded, read in pages both ways, its cursor pinned by id."""

from cortex_tui.model.window import PAGE_ROWS, ROWS_MAX, Window

LIST = list(range(10_000))
"""The first one is the newest; a place is the number of the last row of its page."""


def opened(height: int = 40) -> Window[int, int]:
    window: Window[int, int] = Window(key=lambda row: row, place=lambda row: row)
    window.resize(height)
    window.replace(LIST[:PAGE_ROWS], above=None, below=PAGE_ROWS - 1)
    return window


def fill(window: Window[int, int]) -> None:
    """Read what the window wants, as a screen does."""
    while window.wants_below and window.below is not None:
        begin = window.below + 1
        page = LIST[begin : begin + PAGE_ROWS]
        is_last = begin + PAGE_ROWS >= len(LIST)
        window.extend(page, below=None if is_last else page[-1])
    while window.wants_above and window.above is not None:
        begin = max(0, window.above - PAGE_ROWS)
        window.precede(LIST[begin : window.above], above=begin or None)


def test_window_moves_through_a_long_list_within_its_bound() -> None:
    window = opened()
    for expected in range(20, 9_900, 20):
        window.move(20)
        fill(window)
        assert window.current == expected
        assert expected in window.visible
        assert len(window.rows) <= ROWS_MAX
        assert window.rows == LIST[window.rows[0] : window.rows[0] + len(window.rows)]
    for expected in range(9_860, -1, -20):
        window.move(-20)
        fill(window)
        assert window.current == expected
        assert expected in window.visible
        assert len(window.rows) <= ROWS_MAX


def test_changed_row_keeps_its_original_place() -> None:
    """Rows that left at an end come again, although their neighbours have moved by now."""
    window: Window[tuple[int, int | None], int] = Window(
        key=lambda row: row[0], place=lambda row: row[1]
    )
    window.resize(40)
    rows = [(number, number) for number in LIST]
    window.replace(rows[:ROWS_MAX], above=None, below=ROWS_MAX - 1)
    window.move_to(ROWS_MAX - 1)
    assert window.update([(number, None) for number in range(ROWS_MAX)])
    assert window.update([(number, 9_999) for number in range(ROWS_MAX)])
    window.extend(rows[ROWS_MAX : ROWS_MAX + PAGE_ROWS], below=ROWS_MAX + PAGE_ROWS - 1)
    assert window.rows[0][0] == PAGE_ROWS
    assert window.above == PAGE_ROWS
    window.move_to(0)
    window.precede(rows[:PAGE_ROWS], above=None)
    assert [row[0] for row in window.rows] == LIST[:ROWS_MAX]
    assert window.below == ROWS_MAX - 1


def test_the_cursor_stays_with_its_row() -> None:
    window = opened()
    window.move_to(10)
    window.renew([-2, -1, *LIST[:PAGE_ROWS]], below=None)
    assert window.current == 10


def test_cursor_of_a_removed_row_moves_to_its_successor() -> None:
    window = opened()
    window.move_to(10)
    window.rows.remove(10)
    assert window.current == 11


def test_the_wheel_takes_the_cursor_along_at_the_edges() -> None:
    window = opened()
    window.scroll(30)
    assert (window.top, window.current) == (30, 30)
    window.scroll(-30)
    assert (window.top, window.current) == (0, 30)


def test_an_empty_list_has_no_cursor() -> None:
    window: Window[int, int] = Window(key=lambda row: row)
    window.move(1)
    window.scroll(3)
    assert (window.cursor, window.current, list(window.visible)) == (None, None, [])
