"""The guide to schedules: its code declares one, its file is applied, its commands run."""

import re
import runpy
import shlex
from pathlib import Path

from cortex.durable.registry import JobType
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.servers.postgres import sql

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "schedules.md"


def block(language: str) -> str:
    """The only block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(text)


def test_code_and_file_of_the_guide_declare_the_same_schedule(cortex: Cortex, life: Life) -> None:
    (cortex.folder / "digest.py").write_text(block("python"))
    digest = runpy.run_path(str(cortex.folder / "digest.py"))["digest"]
    assert isinstance(digest, JobType)
    assert digest.schedule is not None
    life.agent()
    (cortex.folder / "schedules.yaml").write_text(block("yaml"))
    cortex("schedules", "apply", "schedules.yaml")
    (row,) = sql(life.dsn, "SELECT * FROM cortex.schedule WHERE name = 'nightly-digest'")
    assert (row["cron"], row["zone"]) == (
        digest.schedule.cron.expression,
        digest.schedule.cron.zone,
    )
    for field in ("type", "backfill_s", "jitter_s", "overlap", "instant_as"):
        assert row[field] == getattr(digest.schedule, field)


def test_the_commands_run_in_their_order(cortex: Cortex, life: Life) -> None:
    life.agent()
    (cortex.folder / "schedules.yaml").write_text(block("yaml"))
    commands = re.findall(r"^    cortex (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        ended = cortex(*shlex.split(command))
        assert ended.code == 0, (command, ended.err)
