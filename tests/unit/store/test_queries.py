"""Named SQL as it is read from its files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.postgres import queries


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of SQL of its own."""
    (tmp_path / "queries").mkdir()
    monkeypatch.setattr(queries, "SQL_DIR", tmp_path)
    yield tmp_path / "queries"
    queries.sql.cache_clear()
    queries._aggregate.cache_clear()


def test_fragment_is_put_in_without_its_comment(folder: Path) -> None:
    (folder / "made_up.sql").write_text(
        "-- fragment: both\n-- What two queries read.\na,\nb\n\n"
        "-- name: one\n-- Reads one. $1 id.\nSELECT {both} FROM t WHERE id = $1;\n\n"
        "-- name: two\nSELECT {both}, '{}'::int[] FROM t;\n"
    )
    assert queries.sql("made_up.one") == (
        "-- Reads one. $1 id.\nSELECT a,\nb FROM t WHERE id = $1;"
    )
    assert queries.sql("made_up.two") == "SELECT a,\nb, '{}'::int[] FROM t;"


@pytest.mark.parametrize("name", ["made_up.both", "made_up.none"])
def test_only_queries_have_names(folder: Path, name: str) -> None:
    (folder / "made_up.sql").write_text("-- fragment: both\na\n-- name: one\nSELECT {both};\n")
    with pytest.raises(KeyError):
        queries.sql(name)


def test_unknown_fragment_is_refused(folder: Path) -> None:
    (folder / "made_up.sql").write_text("-- name: one\nSELECT {both};\n")
    with pytest.raises(KeyError, match="both"):
        queries.sql("made_up.one")
