"""The guide to messages: its file is applied, its code publishes and handles, its commands run."""

import re
import runpy
import shlex
from pathlib import Path

from cortex.durable.message_handlers import MessageHandler
from cortex.durable.registry import JobType
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.servers.postgres import sql

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "outbox.md"


def block(language: str) -> str:
    """The only block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(text)


def test_the_code_has_a_job_and_a_handler(cortex: Cortex) -> None:
    (cortex.folder / "orders.py").write_text(block("python"))
    found = runpy.run_path(str(cortex.folder / "orders.py"))
    assert isinstance(found["take_order"], JobType)
    on_order = found["on_order"]
    assert isinstance(on_order, MessageHandler)
    assert (on_order.subscription.name, on_order.subscription.topic) == ("on_order", "order.*")


def test_the_commands_run_in_their_order(cortex: Cortex, life: Life) -> None:
    (cortex.folder / "subscriptions.yaml").write_text(block("yaml"))
    commands = re.findall(r"^    cortex (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) == 10
    for command in commands:
        ended = cortex(*shlex.split(command))
        assert ended.code == 0, (command, ended.err)
    (call,) = re.findall(r"`(SELECT cortex\.publish[^`]*)`", GUIDE.read_text())
    sql(life.dsn, call)
    rows = sql(life.dsn, "SELECT topic, key, subscription FROM cortex.outbox")
    assert [tuple(row) for row in rows] == [("order.paid", "7", "audit")]
