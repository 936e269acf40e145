"""The terminal as the app has it: Textual's driver, and what becomes of it when the terminal goes.

A terminal whose window was closed answers each read with an end and each write with an error. With
Textual alone the one is read again for ever, a whole core, and the other ends the thread that
writes: the queue before it fills up, and the event loop waits for room in it, deaf to signals too.
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

from cortex_tui.internals import Parser

GONE: Final = 128 + signal.SIGHUP
"""The exit code of who has lost the terminal, whether a signal told so or not."""
READ_BYTES: Final = 4_096
READ_S: Final = 0.1
"""So long a read waits before it sees that it is to end, or that an escape was the key."""
UNTITLED: Final = ("dumb", "linux")
"""Values of TERM, up to the first `-`: without a window that has a title."""
KEEP_TITLE: Final = "\x1b[22;0t"
GIVE_TITLE_BACK: Final = "\x1b[23;0t"


class Terminal(LinuxDriver):
    """Standard input and output. Ends the app with `GONE` as soon as the terminal is gone."""

    class Stopping(Message):
        """Somebody wants this process to stand still, as ctrl+z does: see `may_stop`."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        if sys.__stdin__ is None or sys.__stdout__ is None:
            raise OSError("there is no standard input or output")
        # Textual would write to stderr: `cortex tui 2>errors` is to show something, too.
        self._file: Any = Output(sys.__stdout__.fileno(), encoding=sys.__stdout__.encoding)
        self._has_titles = os.environ.get("TERM", "").partition("-")[0] not in UNTITLED
        self._is_titled = False
        """The title is ours, and the one before is kept by the terminal."""
        self._title = ""
        self.may_stop = False
        """The app has nothing to do before the next SIGTSTP stops it."""
        self._is_stopping = False
        """The app was told to stop, and has neither done so nor refused."""
        self._is_continuing = False
        """It was told to continue, and has not begun to."""
        self._is_closed = False
        """For good: not only while a shell or an editor has the terminal."""
        watch = threading.Thread(target=self._watch, name="terminal-watch", daemon=True)
        watch.start()

    def start_application_mode(self) -> None:
        """Begin, and hear of sizes in their order.

        Textual measures in the handler of the signal. Of two handlers the later one interrupts the
        earlier one, which then tells the older size last: after a storm of sizes it would be held.
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
        """End, with the title that was there before."""
        if self._is_titled:
            self._is_titled = False
            self.write(GIVE_TITLE_BACK)
        super().stop_application_mode()

    def entitle(self, title: str) -> None:
        """Let the window have a title while the app has it; of plain ASCII, nobody else's words."""
        self._title = title
        if self._is_titled and title:
            self.write(f"\x1b]2;{title}\a")
            self.flush()

    def run_input_thread(self) -> None:
        """Read until told to end. What comes in one go has come before any of it is told.

        Textual tells each key before it makes the next one: that one would be younger than the
        question that the first one opens, and agree to it.
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
        """Write, unless nobody would take it: the queue of a thread that has ended fills up."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def suspend_application_mode(self) -> None:
        super().suspend_application_mode()
        self._is_closed = False

    def resume_application_mode(self) -> None:
        """Begin anew, also after a SIGSTOP that nobody heard of: the shell had the terminal.

        Begun twice there would be two threads that read, and the end would restore the wrong modes.
        """
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._let_reads_return()
            self._wake_reader()
            self.suspend_application_mode()
            self._must_signal_resume = True
        super().resume_application_mode()

    def _let_reads_return(self) -> None:
        """Let a read return though a shell has taken what there was: it would wait for a key."""
        with suppress(termios.error):
            modes = termios.tcgetattr(self.fileno)
            modes[tty.LFLAG] &= ~termios.ICANON
            modes[tty.CC][termios.VMIN] = modes[tty.CC][termios.VTIME] = 0
            termios.tcsetattr(self.fileno, termios.TCSANOW, modes)

    def _wake_reader(self) -> None:
        """Begin a read again that found the modes of the shell: those make it wait for a line."""
        reader = self._key_thread
        if reader is not None and reader.ident is not None and reader.is_alive():
            signal.pthread_kill(reader.ident, signal.SIGWINCH)  # it has a handler, which measures

    def _sigcont_application(self, *_: object) -> None:
        """Begin anew, one after the other: a signal that comes meanwhile would begin it twice."""
        if self._auto_restart and not self._is_continuing:
            self._is_continuing = True
            self._soon(self._continue)

    def _continue(self) -> None:
        while self._is_behind:  # continued by somebody else than the shell, which has the terminal
            os.kill(os.getpid(), signal.SIGSTOP)
        self._is_continuing = False
        if self._auto_restart and not self._is_closed:
            self.resume_application_mode()

    @property
    def _is_behind(self) -> bool:
        """Another job of the shell has the terminal."""
        try:
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        except OSError:  # it is not the terminal that controls this process
            return False

    def _sigtstp_application(self, *_: object) -> None:
        """Stop, when the app is ready; at once while the terminal is an editor's anyway."""
        if self.may_stop or not self._auto_restart:
            self.may_stop = False
            super()._sigtstp_application()
        elif not self._is_stopping:
            self._is_stopping = True
            self._soon(self._app.post_message, self.Stopping())

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Stop within, or refuse to: a SIGTSTP meanwhile wants the same."""
        self._is_stopping = True
        try:
            yield
        finally:
            self._is_stopping = False

    def _watch(self) -> None:
        _until(0, self.fileno)
        self.exit_event.set()  # the thread that reads keys: there will be none any more
        self._soon(self._app.exit, GONE)

    def _measure(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(events.Resize(size, size))

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has been closed: the app has ended
            self._loop.call_soon_threadsafe(call, *args)


class Output:
    """What is written to a terminal: all of it, in order, or nothing once the terminal is gone."""

    def __init__(self, number: int, *, encoding: str) -> None:
        self._number = number
        self._encoding = encoding
        self._pending: list[bytes] = []
        self._is_gone = False

    def fileno(self) -> int:
        return self._number

    def write(self, text: str) -> None:
        """Keep text for the next `flush`."""
        self._pending.append(text.encode(self._encoding, "backslashreplace"))

    def flush(self) -> None:
        """Write what was kept; waits as long as the terminal does not take it."""
        left = memoryview(b"".join(self._pending))
        self._pending.clear()
        while left and not self._is_gone:
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:  # somebody else who has this terminal set it so
                _until(select.POLLOUT, self._number)
            except OSError:  # `_watch` tells the app
                self._is_gone = True


def _until(what: int, number: int) -> None:
    """Return when a descriptor is ready for something (0: nothing), or of no use any more."""
    poll = select.poll()
    poll.register(number, what)
    _ = poll.poll()
