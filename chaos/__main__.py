"""`python -m chaos`: imports each command only when it is called."""

import sys
from importlib import import_module
from typing import Final, NoReturn

import click

COMMANDS: Final = {
    "run": ("chaos.commands.run:run", "Break a cluster while it works, then judge what it did."),
    "replay": ("chaos.commands.replay:replay", "Repeat the plan of an earlier run."),
    "points": ("chaos.commands.points:points", "Kill a pod once at each named point of the code."),
    "agents": (
        "chaos.commands.agents:agents",
        "Kill pods of agents with MCP servers at random instants.",
    ),
    "signals": (
        "chaos.commands.signals:signals",
        "Send signals to many jobs while their pods are killed.",
    ),
    "limits": (
        "chaos.commands.limits:limits",
        "Kill pods that run jobs of a type with limits.",
    ),
    "families": (
        "chaos.commands.families:families",
        "Kill pods that run jobs with children.",
    ),
    "sim": ("chaos.commands.sim:sim", "Simulate pods on a virtual clock."),
    "mutants": (
        "chaos.commands.mutants:mutants",
        "Check that the checkers catch deliberately broken runtimes.",
    ),
    "all": (
        "chaos.commands.everything:everything",
        "Run everything (more than half an hour).",
    ),
}
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class Commands(click.Group):
    """Imports a command only when it runs; `--help` imports none."""

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
    """Kill, stop and cut off real pods while they work, then judge what they did.

    Exit codes: 0 all is well, 1 a rule was broken, 2 wrong usage, 130 Ctrl-C.
    """


def main() -> NoReturn:
    """Run a command; report an error in one line."""
    try:
        code = chaos.main(prog_name="python -m chaos", standalone_mode=False)
    except click.ClickException as error:
        _print_error(error.format_message())
        sys.exit(USAGE if isinstance(error, click.UsageError) else FAILED)
    except (click.Abort, KeyboardInterrupt):
        _print_error("interrupted")
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(message: str) -> None:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")


if __name__ == "__main__":
    main()
