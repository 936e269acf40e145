"""run_command: the tool around the child process."""

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.tool import ToolContext, ToolInputError
from cortex.domain.errors import InvalidValueError, RejectedError
from tests.support.eventually import eventually


async def call(context: ToolContext, *argv: str, **given: object) -> Any:
    return await run_command.call(context, {"argv": list(argv), **given})


async def test_a_program_runs_in_the_folder_without_a_shell(context: ToolContext) -> None:
    (context.workspace / "f").touch()
    done = await call(context, "ls", "f", "*; $HOME")
    assert done["exit_code"] != 0
    assert done["stdout"] == "f\n"
    assert "*; $HOME" in done["stderr"]


async def test_no_secret_is_passed_on(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "CORTEX_DSN", "PGPASSWORD", "PATH_KEY"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("LC_ALL", "C")
    done = await call(context, "env")
    assert "canary" not in done["stdout"]
    assert "LC_ALL=C" in done["stdout"].splitlines()
    assert any(line.startswith("PATH=") for line in done["stdout"].splitlines())


async def test_timed_out_command_returns_its_output_so_far(
    context: ToolContext, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    done: dict[str, Any] = {}

    async def run() -> None:
        script = "echo begun; touch begun; exec sleep 1000"
        done.update(await call(context, "sh", "-c", script, timeout=5))
        has_returned.set()

    has_returned = trio.Event()
    nursery.start_soon(run)
    begun = partial(eventually, (context.workspace / "begun").exists, what="it has begun")
    await trio.to_thread.run_sync(begun)
    mock_clock.jump(5)
    await has_returned.wait()
    assert done["timed_out"] is True
    assert done["stdout"] == "begun\n"


async def test_a_program_that_is_not_there_is_named(context: ToolContext) -> None:
    with pytest.raises(RejectedError, match="'no-such-program' cannot be started: No such file"):
        await call(context, "no-such-program")


async def test_nonsense_is_refused(context: ToolContext) -> None:
    with pytest.raises(InvalidValueError, match="argv"):
        await call(context)
    with pytest.raises(InvalidValueError, match="timeout 600"):
        await call(context, "true", timeout=600)
    with pytest.raises(ToolInputError, match="argv must be a list"):
        await run_command.call(context, {"argv": "ls -l"})
