"""`python -m chaos`: its commands, each loaded when it is asked for."""

import sys
from importlib import import_module
from typing import Final, NoReturn

import click

COMMANDS: Final = {
    "run": ("chaos.commands.run:run", "Break a cluster while it works, and judge what it did."),
    "replay": ("chaos.commands.replay:replay", "Carry out the plan of another run again."),
    "points": ("chaos.commands.points:points", "Kill a pod once at each point of the code."),
    "sim": ("chaos.commands.sim:sim", "Simulate pods on a clock that jumps."),
    "mutants": ("chaos.commands.mutants:mutants", "Judge runtimes that are broken on purpose."),
    "all": (
        "chaos.commands.everything:everything",
        "All of it, which takes more than half an hour.",
    ),
}
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class Commands(click.Group):
    """Knows its commands by name; `--help` of the whole imports none of them."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _colon, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_place, what) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def chaos() -> None:
    """Real pods are killed, stopped and cut off while they work, and what they did is judged.

    Exit codes: 0 all is well, 1 a rule was broken, 2 wrong usage, 130 Ctrl-C.
    """


def main() -> NoReturn:
    """Run a command; what goes wrong is told in one line."""
    try:
        code = chaos.main(prog_name="python -m chaos", standalone_mode=False)
    except click.ClickException as error:
        _tell(error.format_message())
        sys.exit(USAGE if isinstance(error, click.UsageError) else FAILED)
    except (click.Abort, KeyboardInterrupt):
        _tell("interrupted")
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _tell(message: str) -> None:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")


if __name__ == "__main__":
    main()
