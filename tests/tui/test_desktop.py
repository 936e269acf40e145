"""Calls to an operator whose terminal is not in front: which sequence, for what, and when not."""

from base64 import b64encode
from uuid import UUID

import pytest
from textual import events

from cortex.store.pulse import ATTENTION_MAX, Attention, Need, Trouble
from cortex_tui.desktop import TEXT_MAX, Notify, sequence
from cortex_tui.model.news import News, headline
from tests.support.hostile import PIECES
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession

END = "\x1b\\"


def need(number: int, kind: str = "approval", word: str = "MED", name: str = "refund") -> Need:
    return Need(
        kind=kind,
        id=UUID(int=number),
        job_id=UUID(int=1),
        name=name,
        word=word,
        agent=None,
        since=None,
        until=None,
    )


@pytest.mark.parametrize(
    "environment, made",
    [
        ({"TERM": "xterm-ghostty"}, f"\x1b]777;notify;cortex;a, b{END}"),
        ({"TERM": "foot-extra"}, f"\x1b]777;notify;cortex;a, b{END}"),
        ({"TERM_PROGRAM": "WezTerm"}, f"\x1b]777;notify;cortex;a, b{END}"),
        ({"TERM": "xterm", "LC_TERMINAL": "iTerm2"}, f"\x1b]9;cortex: a, b{END}"),
        (
            {"TERM": "tmux-256color", "TMUX": "x", "ITERM_SESSION_ID": "w"},
            f"\x1bPtmux;\x1b\x1b]9;cortex: a, b\x1b\x1b\\{END}",
        ),
        ({"TERM": "screen", "STY": "1", "KITTY_WINDOW_ID": "1"}, ""),
        ({"TERM": "xterm-256color"}, ""),
        ({}, ""),
    ],
)
def test_each_terminal_gets_the_sequence_that_it_knows(
    environment: dict[str, str], made: str
) -> None:
    assert sequence("a; b", environment) == made


def test_kitty_gets_its_text_encoded() -> None:
    made = sequence("a; b", {"TERM": "xterm-kitty"})
    title, body = made.removesuffix(END).split(END)
    assert title == "\x1b]99;i=cortex:d=0:o=unfocused;cortex"
    assert body == f"\x1b]99;i=cortex:d=1:p=body:e=1;{b64encode(b'a, b').decode()}"


@pytest.mark.parametrize("text", [*PIECES.values(), "x" * 10_000])
def test_hostile_text_cannot_end_the_sequence(text: str) -> None:
    made = sequence(text, {"TERM": "foot"})
    body = made.removeprefix("\x1b]777;notify;cortex;").removesuffix(END)
    assert len(body) <= TEXT_MAX
    assert body.isprintable()


def test_news_contains_only_new_items() -> None:
    news = News()
    before = Attention(needs=(need(1),))
    assert news.take(before, request_count=1) == []
    more = (need(1), need(2, word="LOW"), need(3, word="HIGH"), need(4, "effect", "UNKNOWN", "pay"))
    spent = (need(5, "job", "budget:day", "a"), need(6, "job", "budget:day", "b"))
    waits = (need(7, "job", "quota:pay"), need(8, "job", "trust:a/git.tag"))
    trouble = Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=None)
    found = Attention(needs=(*more, *spent, *waits), troubles=(trouble,))
    items = news.take(found, request_count=3)
    assert [item.text for item in items] == [
        "refund waits for approval (HIGH)",
        "nobody knows whether pay was applied",
        "budget day is spent",
        "git.tag has changed: cortex agents trust a git.tag",
        "breaker llm:gpt is open",
    ]
    assert headline(items) == "refund waits for approval (HIGH), and 4 more"
    assert news.take(found, request_count=3) == []
    news.take(before, request_count=1)
    assert news.take(found, request_count=3) == [], "what flaps calls once"
    news.forget()
    assert news.take(found, request_count=3) == []


def test_requests_beyond_those_that_are_read_are_counted() -> None:
    news = News()
    full = Attention(needs=tuple(need(number) for number in range(ATTENTION_MAX)))
    assert news.take(full, request_count=40) == []
    assert [item.text for item in news.take(full, request_count=41)] == [
        "41 requests wait for approval"
    ]
    assert news.take(full, request_count=41) == []


@pytest.mark.parametrize(
    "notify, is_away, is_muted, rings",
    [
        (Notify.BELL, True, False, 1),
        (Notify.OSC, True, False, 1),
        (Notify.OFF, True, False, 0),
        (Notify.BELL, False, False, 0),
        (Notify.BELL, True, True, 0),
    ],
)
@on_asyncio
async def test_trouble_notifies_only_people_who_are_away(
    cluster: FakeBackend,
    sit: OpenSession,
    monkeypatch: pytest.MonkeyPatch,
    *,
    notify: Notify,
    is_away: bool,
    is_muted: bool,
    rings: int,
) -> None:
    async with sit(notify=notify) as seat:
        rung: list[None] = []
        monkeypatch.setattr(seat.app, "bell", lambda: rung.append(None))
        if is_muted:
            await seat.press("m")
        if is_away:
            seat.app.post_message(events.AppBlur())
        for _ in range(6):
            await seat.pass_time(1)
        trouble = Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=None)
        cluster.pulse.attention_seen = Attention(troubles=(trouble,))
        for _ in range(6):
            await seat.pass_time(1)
        assert len(rung) == rings
