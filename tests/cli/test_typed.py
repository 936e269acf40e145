"""Commands as people type them in another terminal."""

from pathlib import Path

import pytest

from cortex.cli.screen.typed import UNDER_UV, typed
from cortex.config import Settings
from cortex.postgres.embedded.server import default_data_dir


def installed(*words: str, settings: Settings) -> str:
    return typed(*words, settings=settings, program="/usr/bin/cortex", environ={})


def test_installed_command_is_called_by_its_name() -> None:
    assert installed("tui", settings=Settings()) == "cortex tui"
    at_home = Settings(data=default_data_dir())
    assert installed("tui", settings=at_home) == "cortex tui"


@pytest.mark.parametrize(
    "program, environ, start",
    [
        ("/x/cortex/__main__.py", {}, "python -m cortex"),
        ("/x/.venv/bin/cortex", {UNDER_UV: "1"}, "uv run cortex"),
    ],
)
def test_other_programs_are_called_as_they_were_started(
    program: str, environ: dict[str, str], start: str
) -> None:
    assert typed("tui", settings=Settings(), program=program, environ=environ) == f"{start} tui"


def test_another_database_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    output = installed("tui", settings=Settings(data=folder))
    assert output == f"cortex tui --data '{folder}'"
    dsn = "postgresql://ana:geheim@db/cortex"
    output = installed("jobs", "ls", settings=Settings(dsn=dsn))
    assert output == "cortex jobs ls --dsn 'postgresql://ana:***@db/cortex'"
