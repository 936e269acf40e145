"""Keys as they are read from a terminal."""

import os
import threading
from time import monotonic

from textual.message import Message

from cortex_tui.terminal import Terminal


def test_keys_read_at_once_have_arrived_before_the_first_is_handled() -> None:
    reading, writing = os.pipe()
    output: list[tuple[float, Message]] = []

    def tell(event: Message) -> None:
        output.append((monotonic(), event))
        if len(output) == 4:
            driver.exit_event.set()

    driver = Terminal.__new__(Terminal)  # without a terminal
    driver.fileno, driver.exit_event, driver._debug = reading, threading.Event(), False
    driver.process_message = tell  # type: ignore[method-assign, assignment]
    os.write(writing, b"K\xc3\xa4yy")
    driver.run_input_thread()
    os.close(reading)
    os.close(writing)
    assert [getattr(event, "character", "") for _, event in output] == ["K", "ä", "y", "y"]
    first_told, _ = output[0]
    assert all(event.time <= first_told for _, event in output)
