"""The app's terminal: Textual's driver, made safe for a terminal that goes away.

A terminal whose window was closed returns end-of-file for reads and an error for writes. Textual
alone would then read in a busy loop, and its writer thread would end: the queue fills up, and the
event loop blocks on it, deaf even to signals.
"""

import codecs
import os
import select
import selectors
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message

from cortex_tui.desktop import is_in_tmux, sequence
from cortex_tui.internals import Parser

GONE: Final = 128 + signal.SIGHUP
"""The exit code when the terminal is gone, whether or not a signal came."""
READ_BYTES: Final = 4_096
READ_S: Final = 0.1
"""How long a read blocks before it notices the end, or that esc was the whole key."""
UNTITLED: Final = ("dumb", "linux")
"""Values of TERM, up to the first `-`, of terminals whose windows have no title."""
KEEP_TITLE: Final = "\x1b[22;0t"
GIVE_TITLE_BACK: Final = "\x1b[23;0t"


class Terminal(LinuxDriver):
    """Standard input and output. Ends the app with `GONE` as soon as the terminal is gone."""

    class Stopping(Message):
        """A request to suspend this process, as ctrl+z makes it: see `may_stop`."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        if sys.__stdin__ is None or sys.__stdout__ is None:
            raise OSError("there is no standard input or output")
        # Textual would write to stderr; `cortex tui 2>errors` must still show the app.
        self._file: Any = Output(sys.__stdout__.fileno(), encoding=sys.__stdout__.encoding)
        self._has_titles = os.environ.get("TERM", "").partition("-")[0] not in UNTITLED
        self._is_titled = False
        """The app has set the title, and the terminal keeps the former one."""
        self._title = ""
        self.may_stop = False
        """The app has nothing to do before the next SIGTSTP suspends it."""
        self._is_stopping = False
        """The app was asked to suspend, and has neither done so nor refused."""
        self._is_continuing = False
        """It was asked to continue, and has not restarted yet."""
        self._is_closed = False
        """Closed for good, not only while a shell or an editor has the terminal."""
        watch = threading.Thread(target=self._watch, name="terminal-watch", daemon=True)
        watch.start()

    def start_application_mode(self) -> None:
        """Start, and report sizes in their order.

        Textual measures in the signal handler. A second signal interrupts the first handler, which
        then reports the older size last: after many resizes the app would keep a stale size.
        """
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._let_reads_return()
        signal.signal(signal.SIGWINCH, lambda *_: self._soon(self._measure))
        self._soon(self._measure)  # it may have changed between Textual's handler and this one
        if self._has_titles and self._writer_thread is not None:
            self._is_titled = True
            self.write(KEEP_TITLE)
            self.entitle(self._title)

    def stop_application_mode(self) -> None:
        """Stop, and restore the former title."""
        if self._is_titled:
            self._is_titled = False
            self.write(GIVE_TITLE_BACK)
        super().stop_application_mode()

    def entitle(self, title: str) -> None:
        """Set the window title while the app runs; plain ASCII from the app's own words only."""
        self._title = title
        if self._is_titled and title:
            self.write(f"\x1b]2;{title}\a")
            self.flush()

    def notify(self, text: str) -> bool:
        """Show a desktop notification; return whether the terminal certainly gets it."""
        made = sequence(text, os.environ)
        self.write(made)
        self.flush()
        return bool(made) and not is_in_tmux(os.environ)

    def run_input_thread(self) -> None:
        """Read until the app ends. Keys that arrive together are stamped before any is delivered.

        Textual delivers each key before it creates the next, so that the next would be younger than
        the question that the first one opens, and could confirm it.
        """
        parser = Parser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                came = bool(selector.select(READ_S))
                text = decode(os.read(self.fileno, READ_BYTES)) if came else ""
                for event in [*(parser.feed(text) if text else ()), *parser.tick()]:
                    self.process_message(event)

    def write(self, data: str) -> None:
        """Write, unless the writer thread has ended: its queue would fill up."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def suspend_application_mode(self) -> None:
        super().suspend_application_mode()
        self._is_closed = False

    def resume_application_mode(self) -> None:
        """Restart, also after a SIGSTOP that was not noticed, while the shell had the terminal.

        Starting twice would create two reading threads, and the end would restore the wrong modes.
        """
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._restart()
        else:
            super().resume_application_mode()

    def _restart(self) -> None:
        """Stop and start, and keep the keys that are typed meanwhile.

        Textual's stop drops them, and the terminal itself takes ctrl+z in the shell's modes.
        """
        if self.exit_event.is_set():
            return  # the terminal is gone
        self._let_reads_return()
        self._wake_reader()
        self.exit_event.set()  # also: `disable_input`, which drops keys, has nothing left to do
        if self._key_thread is not None:
            self._key_thread.join()
        modes, self.attrs_before = self.attrs_before, None  # the stop restores none
        self.suspend_application_mode()
        self._must_signal_resume = True
        self.exit_event.clear()
        super().resume_application_mode()
        self.attrs_before = modes

    def _let_reads_return(self) -> None:
        """Let a read return although a shell has taken its input; it would wait for a key."""
        with suppress(termios.error):
            modes = termios.tcgetattr(self.fileno)
            modes[tty.LFLAG] = self._patch_lflag(modes[tty.LFLAG])
            modes[tty.CC][termios.VMIN] = modes[tty.CC][termios.VTIME] = 0
            termios.tcsetattr(self.fileno, termios.TCSANOW, modes)

    def _wake_reader(self) -> None:
        """Restart a read that began in the shell's modes, in which it waits for a whole line."""
        reader = self._key_thread
        if reader is not None and reader.ident is not None and reader.is_alive():
            signal.pthread_kill(reader.ident, signal.SIGWINCH)  # its handler measures the terminal

    def _sigcont_application(self, *_: object) -> None:
        """Restart once at a time: a signal that arrives meanwhile would restart twice."""
        if self._auto_restart and not self._is_continuing:
            self._is_continuing = True
            self._soon(self._continue)

    def _continue(self) -> None:
        while self._is_behind:  # continued by a process other than the shell that has the terminal
            os.kill(os.getpid(), signal.SIGSTOP)
        self._is_continuing = False
        if self._auto_restart and not self._is_closed:
            self.resume_application_mode()

    @property
    def _is_behind(self) -> bool:
        """Whether another job of the shell has the terminal."""
        try:
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        except OSError:  # it is not this process's controlling terminal
            return False

    def _sigtstp_application(self, *_: object) -> None:
        """Suspend when the app is ready; at once while an editor has the terminal."""
        if self.may_stop or not self._auto_restart:
            self.may_stop = False
            super()._sigtstp_application()
        elif not self._is_stopping:
            self._is_stopping = True
            self._soon(self._app.post_message, self.Stopping())

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Suspend inside this block, or refuse; further SIGTSTPs meanwhile are the same request."""
        self._is_stopping = True
        try:
            yield
        finally:
            self._is_stopping = False

    def _watch(self) -> None:
        _until(0, self.fileno)
        self.exit_event.set()  # the reading thread ends
        self._soon(self._app.exit, GONE)

    def _measure(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(events.Resize(size, size))

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the app has ended
            self._loop.call_soon_threadsafe(call, *args)


class Output:
    """Writes to a terminal: everything in order, or nothing once the terminal is gone."""

    def __init__(self, number: int, *, encoding: str) -> None:
        self._number = number
        self._encoding = encoding
        self._pending: list[bytes] = []
        self._is_gone = False

    def fileno(self) -> int:
        return self._number

    def write(self, text: str) -> None:
        """Buffer text for the next `flush`."""
        self._pending.append(text.encode(self._encoding, "backslashreplace"))

    def flush(self) -> None:
        """Write the buffer; blocks while the terminal accepts nothing."""
        left = memoryview(b"".join(self._pending))
        self._pending.clear()
        while left and not self._is_gone:
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:  # another process set this terminal to non-blocking
                _until(select.POLLOUT, self._number)
            except OSError:  # `_watch` notifies the app
                self._is_gone = True


def _until(what: int, number: int) -> None:
    """Wait until a descriptor is ready for an event (0: none), or is no longer usable."""
    poll = select.poll()
    poll.register(number, what)
    _ = poll.poll()
