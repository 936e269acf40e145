"""Starts further Python processes that find modules as this one does."""

import os
import sys

is_command = False
"""This process runs the command line that it was started with: set by `main`."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with this process's interpreter.

    The working directory is not searched for it. The Python in the binary is isolated (-I) and
    takes nothing from PYTHONPATH, which belongs to another Python.
    """
    flag = "-I" if sys.flags.isolated else "-P"
    return [sys.executable, flag, "-m", module, *arguments]


def same_command(arguments: list[str]) -> list[str]:
    """Return the command that started this process, with other arguments."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1], *arguments]


def start_again() -> None:
    """Replace this process by a new one with its command line; return if it runs another one."""
    if is_command:
        os.execv(sys.executable, same_command(sys.argv[1:]))  # noqa: S606
