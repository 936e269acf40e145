"""`cortex scripted-model`: a model for people who try agents without an API key."""

import click
import trio

from cortex.cli.apps import load_app
from cortex.cli.options import Command
from cortex.demo.server import serve_until_stopped
from cortex.domain.errors import UsageError


@click.command("scripted-model", cls=Command)
@click.argument("script", metavar="FILE:FUNCTION")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8901,
    metavar="PORT",
    help="Port on loopback; 0 picks a free one [8901].",
)
def scripted_model(script: str, port: int) -> None:
    """Serve a scripted model, to try agents without an API key.

    The function gets each call and returns the answer. Point pods at it by ANTHROPIC_BASE_URL, and
    set ANTHROPIC_API_KEY to anything. It ends on SIGTERM or Ctrl-C.
    """
    file, _, function = script.rpartition(":")
    if not file:
        raise UsageError(f"{script!r} names no function", hint="give both, such as model.py:answer")
    answers = getattr(load_app(file), function, None)
    if not callable(answers):
        raise UsageError(f"{file} has no function {function!r}")
    try:
        trio.run(serve_until_stopped, answers, "127.0.0.1", port)
    except OSError as error:
        raise UsageError(
            f"port {port} is not free: {error.strerror}", hint="choose another one with --port"
        ) from error
