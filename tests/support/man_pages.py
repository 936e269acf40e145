"""Generates packaging/man and packaging/completion: `python -m tests.support.generate man`.

One page a command of the top level, with all of its subcommands, so that the folder stays small:
click-man writes a page for each of the 150 leaves.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from cortex.cli.completion import SHELLS, script
from cortex.cli.examples import EXAMPLES
from cortex.cli.failures import EXIT_CODES
from cortex.cli.main import SUMMARY, cli
from cortex.cli.options import Command
from tests.support.reference_pages import _first_line, _help_text, _leaves, _usage

PACKAGING: Final = Path(__file__).parent.parent.parent / "packaging"
FILES: Final = """\
.TP
.I cortex.toml
Settings of the working directory.
.TP
.I ~/.config/cortex/config.toml
Settings of the user.
"""
NAMES: Final = {"bash": "cortex.bash", "zsh": "_cortex", "fish": "cortex.fish"}


def files() -> Iterator[tuple[Path, str]]:
    """Each file with the text that it must have."""
    yield PACKAGING / "man" / "cortex.1", _overview()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None:
            yield PACKAGING / "man" / f"cortex-{name}.1", _page(name, command)
    for shell in SHELLS:
        yield PACKAGING / "completion" / NAMES[shell], script(shell).strip() + "\n"


def _overview() -> str:
    summary, *rest = SUMMARY.split("\n\n")
    parts = [_head("cortex", summary), ".SH SYNOPSIS\n.B cortex\n.I COMMAND\n[OPTIONS]\n"]
    parts.append(f".SH DESCRIPTION\n{_text(rest)}")
    context = click.Context(cli)
    parts.append(".SH COMMANDS\n")
    parts += [
        f".TP\n.BR cortex-{_plain(name)} (1)\n{_plain(_summary(context, name))}\n"
        for name in cli.list_commands(context)
    ]
    common = click.Command("cortex", params=list(Command.common))
    parts += [".SH OPTIONS OF ALL COMMANDS\n", _options(common)]
    codes = "".join(f".TP\n.B {code}\n{_plain(what)}\n" for code, what in EXIT_CODES.items())
    return "".join([*parts, f".SH EXIT STATUS\n{codes}", f".SH FILES\n{FILES}"])


def _summary(context: click.Context, name: str) -> str:
    command = cli.get_command(context, name)
    return "" if command is None else _first_line(command)


def _page(name: str, command: click.Command) -> str:
    path = f"cortex {name}"
    leaves = list(_leaves(command, path)) if isinstance(command, click.Group) else []
    leaves = leaves or [(path, command)]
    first = _first_line(command)
    parts = [_head(f"cortex-{name}", first), ".SH SYNOPSIS\n"]
    parts += [f".B {_plain(_usage(each, full))}\n.br\n" for full, each in leaves]
    if isinstance(command, click.Group):
        rest = _help_text(command).removeprefix(first).strip().split("\n\n")
        parts += [f".SH DESCRIPTION\n{_text(rest)}"] if rest != [""] else []
    for full, each in leaves:
        parts.append(f".SH {_plain(full)}\n{_text(_help_text(each).split(chr(10) * 2))}")
        lines = "\n".join(map(_plain, EXAMPLES[full.removeprefix("cortex ")]))
        parts.append(f".PP\nFor example:\n.PP\n.nf\n{lines}\n.fi\n")
        parts.append(_options(each))
    parts.append(
        ".SH SEE ALSO\n.BR cortex (1),\nfor the options of all commands and the exit status.\n"
    )
    return "".join(parts)


def _head(name: str, summary: str) -> str:
    plain = _plain(summary.rstrip("."))
    return f'.TH {_plain(name).upper()} 1 "" Cortex "Cortex"\n.SH NAME\n{name} \\- {plain}\n'


def _options(command: click.Command) -> str:
    common = Command.common if isinstance(command, Command) else ()
    context = click.Context(command)
    found = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter not in common and not parameter.hidden:
            names, text = parameter.get_help_record(context) or ("", "")
            found.append(f".TP\n.B {_plain(names)}\n{_plain(text)}\n")
    return "".join(found)


def _text(paragraphs: list[str]) -> str:
    """Return paragraphs; indented lines stay as they are."""
    found = []
    for paragraph in paragraphs:
        lines = paragraph.split("\n")
        if all(line.startswith("  ") for line in lines):
            found.append(".PP\n.nf\n" + "\n".join(map(_plain, lines)) + "\n.fi\n")
        else:
            found.append(".PP\n" + _plain(" ".join(line.strip() for line in lines)) + "\n")
    return "".join(found)


def _plain(text: str) -> str:
    """Escape what roff would read."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def main() -> None:
    for folder in ("man", "completion"):
        (PACKAGING / folder).mkdir(parents=True, exist_ok=True)
        for old in (PACKAGING / folder).iterdir():
            old.unlink()
    for path, text in files():
        path.write_text(text, "utf-8")
