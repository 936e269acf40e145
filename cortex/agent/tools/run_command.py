"""Runs a program."""

from functools import partial

import trio

from cortex.agent.confinement.process import Completed, run_confined, run_process
from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.confinement import Confinement
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.timeouts import TIMEOUTS

TIMEOUT_MAX_S = TIMEOUTS["tool_call"].hard_s
COMMAND_TIMEOUT_DEFAULT_S = TIMEOUTS["tool_call"].default_s
# Leaves time within the tool's own limit for ending the process group.
COMMAND_TIMEOUT_MAX_S = TIMEOUT_MAX_S - 20
OUTPUT_MAX_BYTES = 65_536


@tool(timeout=TIMEOUT_MAX_S, local=True)
async def run_command(
    context: ToolContext, argv: list[str], timeout: float = COMMAND_TIMEOUT_DEFAULT_S
) -> Completed:
    """Run a program in the working folder and wait for it to end.

    There is no shell: pipes, globs, && and variables are not interpreted; to use them, run
    ["sh", "-c", "…"]. The program has no input, no network unless you were given one, and only a
    minimal environment. It sees the working folder and the system's programs. It can write to the
    working folder, unless an error says that the folder is read-only, but not under names that
    tools obey unasked, such as .git, .envrc or .vscode: new ones are moved away afterwards. What it
    writes to the temporary folder is gone afterwards.
    Whatever it leaves running is ended with it. Of long output the middle is left out.

    Args:
        argv: The program and its arguments, such as ["git", "status"].
        timeout: Seconds after which the program is ended, at most 580.
    """
    if not argv or not argv[0]:
        raise InvalidValueError(f"run_command: argv {argv!r}", hint='such as ["git", "status"]')
    if not 0 < timeout <= COMMAND_TIMEOUT_MAX_S:
        raise InvalidValueError(
            f"run_command: timeout {timeout:g}",
            hint=f"more than 0, at most {COMMAND_TIMEOUT_MAX_S:g} seconds",
        )
    environment = context.environment
    if environment is None:
        environment = context.confiner.environment()
    try:
        if context.confiner.means is Confinement.UNSAFE:
            return await run_process(
                argv,
                folder=context.folder,
                environment=environment,
                timeout_s=timeout,
                output_max_bytes=OUTPUT_MAX_BYTES,
            )
        launch = await trio.to_thread.run_sync(
            partial(
                context.confiner.launch,
                workspace=context.workspace,
                folder=context.folder,
                has_network=context.has_network,
                writes=context.writes_folder,
                environment=environment,
                quota=context.quota,
            )
        )
        return await run_confined(
            argv, launch=launch, timeout_s=timeout, output_max_bytes=OUTPUT_MAX_BYTES
        )
    except OSError as error:
        raise RejectedError(f"{argv[0]!r} cannot be started: {error.strerror}") from error
