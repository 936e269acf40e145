"""How a command ends: one line and a hint for people, JSON for machines, an exit code."""

import errno
import re
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import click

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe

EXIT_CODES: Final = {
    0: "ok",
    1: "failed",
    2: "wrong usage",
    3: "not found",
    4: "not allowed",
    5: "conflict: already ended, decided or changed",
    6: "the watched job ended FAILED or CANCELLED",
    7: "timed out",
    8: "unhealthy",
    9: "jobs in flight do not fit the code",
    130: "Ctrl-C",
}
INTERRUPTED: Final = 130
INTERNAL: Final = "internal"
"""The code of errors that are faults."""
WORD_MAX: Final = 200
"""Longer words are cut in messages: nobody reads a longer typing error."""
TEXT_MAX: Final = 2000
_END_KEPT: Final = 20
_LINE_BREAK: Final = re.compile(r"[\r\n]+")
_LONG_WORD: Final = re.compile(rf"\S{{{WORD_MAX + 1},}}")
_CHOICES: Final = re.compile(r"\. Choose from:\s+(.+)", re.DOTALL)
"""As click writes them, one per line."""
READER_GONE: Final = 141
"""The exit code of a program killed by SIGPIPE: no reader is left for a message."""


def _cut(text: str, length: int) -> str:
    """Cut the middle out of a longer text."""
    return text if len(text) <= length else f"{text[: length - _END_KEPT]}…{text[-_END_KEPT:]}"


def _one_line(text: str) -> str:
    """Return one line that a person can read: long words and texts are cut."""
    words = _LONG_WORD.sub(lambda found: _cut(found[0], WORD_MAX), text)
    return _LINE_BREAK.sub(" ", _cut(words, TEXT_MAX))


class Failure(NamedTuple):
    """A failed command, as its caller sees it."""

    code: str
    message: str
    hint: str | None
    exit_code: int


def failure_of(error: BaseException) -> Failure:
    """Return what a command reports for an error."""
    from cortex.domain.classification import leading

    failure = _failure_of(leading(error))
    hint = None if failure.hint is None else _one_line(failure.hint)
    return failure._replace(message=_one_line(failure.message), hint=hint)


def _failure_of(error: BaseException) -> Failure:
    if isinstance(error, CortexError):
        return Failure(
            code=error.code, message=error.message, hint=error.hint, exit_code=error.exit_code
        )
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Failure(code="interrupted", message="interrupted", hint=None, exit_code=INTERRUPTED)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Failure(
            code="no_space", message=f"cannot write: {error.strerror}", hint=None, exit_code=1
        )
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(
        code=INTERNAL,
        message=f"this is a fault in Cortex or in the app: {text}",
        hint="run it again with --debug to see where",
        exit_code=1,
    )


def is_reader_gone(error: BaseException) -> bool:
    """Whether the only error is that stdout has no reader any more."""
    from cortex.domain.classification import leaves

    return all(isinstance(leaf, BrokenPipeError) for leaf in leaves(error))


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Write an error to stderr in the format that the arguments request; return the exit code."""
    failure = failure_of(error)
    if "--debug" in _before_dashes(arguments) and failure.exit_code != INTERRUPTED:
        traceback.print_exception(error)
    if wants_json(arguments):
        # Not orjson: an error message for a typing error should not wait for its import.
        import json

        shown = {"code": failure.code, "message": failure.message, "hint": failure.hint}
        print(json.dumps({"error": shown}), file=sys.stderr)
    elif failure.exit_code != INTERRUPTED:
        _report("error:", failure.message, arguments)
        if failure.hint:
            _report("hint:", failure.hint, arguments)
    return failure.exit_code


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether machines read the errors, even if other arguments are wrong."""
    words = _before_dashes(arguments)
    formats = {"json", "jsonl"}
    return (
        "--json" in words
        or any(
            word in {"-o", "--output"} and following in formats
            for word, following in pairwise(words)
        )
        or any(
            word.removeprefix("--output=").removeprefix("-o") in formats
            for word in words
            if word.startswith(("--output=", "-o"))
        )
    )


def _report(label: str, text: str, arguments: Sequence[str]) -> None:
    from cortex.cli.screen.terminal import stderr_terminal

    terminal = stderr_terminal(arguments)
    if terminal.is_tty:
        from cortex.view.phrases import localised

        text = localised(text)
    terminal.write(f"{terminal.paint(label, 'fail' if label == 'error:' else 'dim')} {safe(text)}")


def _before_dashes(arguments: Sequence[str]) -> list[str]:
    words = list(arguments)
    return words[: words.index("--")] if "--" in words else words


def _chosen_from(found: re.Match[str]) -> str:
    return ": " + ", ".join(each.strip() for each in found[1].split(","))


def _list_of(error: click.ClickException, context: click.Context) -> str:
    """Return the command that lists what a missing argument names, if its group has one."""
    group = None if context.parent is None else context.parent.command
    missing = error.param if isinstance(error, click.MissingParameter) else None
    if not isinstance(missing, click.Argument) or not isinstance(group, click.Group):
        return ""
    named = (missing.metavar or missing.name or "").strip("[]…")
    verb = {"TYPE": "types", "FILE": None}.get(named, "ls")
    has_list = verb is not None and group.get_command(context, verb) is not None
    return f"; to list them: cortex {group.name} {verb}" if has_list else ""


def _of_click(error: click.ClickException) -> Failure:
    possibilities: Any = getattr(error, "possibilities", None)
    context: click.Context | None = getattr(error, "ctx", None)
    message = error.message if possibilities else error.format_message()
    hint = None
    if possibilities:
        hint = f"did you mean {' or '.join(repr(each) for each in possibilities)}?"
    elif context is not None:
        hint = f"see: {context.command_path} --help{_list_of(error, context)}"
    message = message[:1].lower() + _CHOICES.sub(_chosen_from, message[1:]).rstrip(".")
    return Failure(code="usage", message=message, hint=hint, exit_code=error.exit_code)
