"""`cortex up --tui`: the terminal UI in front, its pod beside it, one terminal for both.

The pod is a process of its own (asyncio here, trio there), so neither can block the other. When the
UI ends or fails, the pod runs until a signal. When the terminal or this process ends, the pod
drains. When the pod ends, the UI says so.
"""

import os
from contextlib import suppress
from typing import Final

from cortex.cli.asking import acting
from cortex.cli.options import Options
from cortex.cli.run.pod_beside import PodBeside
from cortex.cli.target import database
from cortex.cli.tui import show
from cortex.config import Settings
from cortex.domain.safe import safe

LINES_MAX: Final = 20
"""Lines shown of the log of a pod that could not start."""
BY_SIGNAL: Final = 128
"""Larger exit codes name a signal."""


def up_on_screen(pod: PodBeside, options: Options, settings: Settings) -> int:
    """Show the UI once the pod is ready, then wait for the pod; return the exit code."""
    with pod.in_front():
        _report("starting the pod …")
        if not pod.until_ready():
            exit_code = pod.wait()
            _report(pod.last_words(LINES_MAX))
            return exit_code
        _report(f"pod {pod.name} is ready after {pod.ready_s:.2f} s; its log: {pod.log}")
        if pod.http is not None:
            _report(f"the API is at {pod.http}")
        screen_code = 0
        try:
            if not pod.is_draining:
                with database(settings, must_exist=True) as address:
                    identity = acting(options, None)
                    screen_code = show(address, settings, options, identity=identity, pod=pod)
                if screen_code >= BY_SIGNAL:  # the terminal may have closed without a signal
                    pod.drain()
        except BaseException:
            pod.drain()
            _until_end(pod)
            raise
        pod_code = _until_end(pod)
    return pod_code or (screen_code if screen_code < BY_SIGNAL else 0)


def _until_end(pod: PodBeside) -> int:
    """Wait for the pod, and report its phases and its end."""
    if pod.is_draining:
        _report(f"pod {pod.name} drains; Ctrl-C hands its jobs back at once")
    elif pod.ended() is None:
        _report(
            f"pod {pod.name} keeps running, its log: {pod.log}\nCtrl-C drains it, a "
            "second one hands its jobs back at once; cortex tui brings the screen "
            "back"
        )
    exit_code = pod.wait()
    _report(f"pod {pod.name} {pod.ended()}; its log: {pod.log}")
    return exit_code


def _report(text: str) -> None:
    """Write to stderr without its buffer: a closed terminal must not spoil the end."""
    with suppress(OSError):
        os.write(2, (safe(text, newline="\n") + "\n").encode(errors="backslashreplace"))
