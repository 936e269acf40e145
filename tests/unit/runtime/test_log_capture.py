"""What is taken of loggers, streams and threads, whatever an application has configured."""

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from uuid import UUID

import pytest
import structlog

from cortex.domain import redaction
from cortex.domain.job import Lease
from cortex.domain.log_line import Level, LogLine
from cortex.domain.tracing import current
from cortex.durable.job_log import LineBuffer, write_line
from cortex.runtime.logs.capture import TRACEBACK_CHARS_MAX, captured, captured_streams
from tests.support.knowing import forget_secrets
from tests.support.records.factories import a_claim


class Job:
    """Code of a job, and what is kept of it."""

    def __init__(self) -> None:
        self.buffer = LineBuffer(lambda: 0.0)
        self.context = copy_context()
        claim = a_claim(lease=Lease(UUID(int=7), 1), type="speak")
        self.context.run(current.enter, claim, self.buffer)

    def run(self, work: Callable[..., object], *args: object, **kwargs: object) -> None:
        self.context.run(work, *args, **kwargs)

    def lines(self) -> list[LogLine]:
        return self.buffer.take(1_000)

    def texts(self) -> list[str]:
        return [line.message for line in self.lines()]


@pytest.fixture
def job() -> Iterator[Job]:
    with captured():
        yield Job()


@contextmanager
def own_streams() -> Iterator[io.BytesIO]:
    """Pytest puts streams of its own in place after the fixtures."""
    kept, raw = (sys.stdout, sys.stderr), io.BytesIO()
    sys.stdout = sys.stderr = io.TextIOWrapper(raw, write_through=True)
    try:
        with captured_streams():
            yield raw
    finally:
        sys.stdout, sys.stderr = kept


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.getLogger("shop")
    made.setLevel(logging.INFO)
    yield made
    made.setLevel(logging.NOTSET)
    made.handlers.clear()
    made.propagate = True


def test_records_are_taken_with_level_fields_and_traceback(job: Job, log: logging.Logger) -> None:
    def work() -> None:
        log.info("order %d", 8, extra={"customer": "c1"})
        log.debug("is not enabled")
        try:
            int("broken")
        except ValueError:
            log.exception("failed")

    job.run(work)
    first, second = job.lines()
    assert (first.message, first.level, first.source) == ("order 8", Level.INFO, "shop")
    assert first.fields == '{"customer":"c1"}'
    assert second.level is Level.ERROR
    assert second.message.startswith("failed\nTraceback")
    assert second.message.endswith("invalid literal for int() with base 10: 'broken'")


def test_the_cut_of_a_long_traceback_leaves_no_end_of_a_secret(
    job: Job, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_secrets(monkeypatch)
    redaction.register("TOKEN", "sk-0f9e8d7c5a")

    error = ValueError("sk-0f9e8d7c5a" + "y" * (TRACEBACK_CHARS_MAX - 8))
    job.run(log.error, "broken", exc_info=error)
    (text,) = job.texts()
    assert "8d7c5a" not in text


def test_a_logger_that_fails_in_its_formatter_loses_no_line(job: Job, log: logging.Logger) -> None:
    class Broken(logging.Formatter):
        def format(self, _: logging.LogRecord) -> str:
            raise RuntimeError("formatter")

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Broken())
    log.addHandler(handler)
    log.propagate = False
    job.run(log.info, "kept")
    job.run(log.info, "%d", "no number")
    first, second = job.texts()
    assert first == "kept"
    assert second.startswith("%d (its arguments do not fit: TypeError")


def test_handlers_of_the_application_do_not_double_a_line(job: Job, log: logging.Logger) -> None:
    log.addHandler(logging.StreamHandler(sys.stdout))
    log.propagate = False
    job.run(log.warning, "once")
    assert job.texts() == ["once"]


def test_structlog_is_taken_in_every_configuration(job: Job) -> None:
    def drop(_: object, method: str, event: structlog.typing.EventDict) -> object:
        if event.get("event") == "unwanted":
            raise structlog.DropEvent
        return f"{method} {event}"

    def work() -> None:
        cortex = structlog.get_logger().bind(logger="cortex.runtime")
        cortex.info("own event", job="1", type="order", attempt=1, pause_s=2)
        for factory in (structlog.PrintLoggerFactory, structlog.stdlib.LoggerFactory):
            structlog.configure(processors=[drop], logger_factory=factory())  # type: ignore[list-item]
            logger = structlog.get_logger("shop").bind(order=8)
            logger.info("paid", by="ana", method="GET", kw=1)
            logger.error("unwanted")
            logger.error("late", exc_info=ValueError("why"))

    kept = structlog.get_config()
    try:
        job.run(work)
    finally:
        structlog.configure(**kept)
    own, *lines = job.lines()
    assert own.fields == '{"logger":"cortex.runtime","pause_s":2}'
    assert [(line.message.split("\n")[0], line.level) for line in lines] == [
        ("paid", Level.INFO),
        ("late", Level.ERROR),
    ] * 2
    assert lines[0].fields == '{"order":8,"by":"ana","method":"GET","kw":1}'
    assert "ValueError: why" in lines[1].message


def test_print_and_bytes_are_taken_and_passed_on(job: Job) -> None:
    def work() -> None:
        show("text")
        sys.stdout.buffer.write(b"bytes \xff\n")
        sys.stderr.write("to stderr\n")

    with own_streams() as raw:
        job.run(work)
        show("of no job")
        assert raw.getvalue() == b"text\nbytes \xff\nto stderr\nof no job\n"
    assert [(line.message, line.source) for line in job.lines()] == [
        ("text", "stdout"),
        ("bytes \ufffd", "stdout"),
        ("to stderr", "stderr"),
    ]


def test_threads_belong_to_the_job_that_starts_them(job: Job, log: logging.Logger) -> None:
    with own_streams(), ThreadPoolExecutor(1) as pool:

        def work() -> None:
            thread = threading.Thread(target=show, args=("own thread",))
            thread.start()
            thread.join()
            pool.submit(show, "in a pool").result()

        job.run(work)
        pool.submit(show, "of no job, in the same thread").result()
        pool.submit(log.error, "of no job, in the same thread").result()
    assert job.texts() == ["own thread", "in a pool"]


def test_code_of_no_job_is_not_taken(job: Job, log: logging.Logger) -> None:
    log.error("start-up")
    structlog.get_logger().info("start-up")
    assert job.texts() == []


def test_a_line_of_the_context_is_kept_once(job: Job) -> None:
    with structlog.testing.capture_logs() as shown:
        job.run(write_line, "paid", Level.WARNING, {"event": "e", "step": 1, "order": 8})
    (line,) = job.lines()
    assert (line.message, line.level, line.source) == ("paid", Level.WARNING, None)
    assert line.fields == '{"event":"e","step":1,"order":8}'
    assert (shown[0]["event"], shown[0]["event_"], shown[0]["order"]) == ("paid", "e", 8)
    job.run(write_line, 123, Level.INFO, {"self": 1})
    (line,) = job.lines()
    assert (line.message, line.fields) == ("123", '{"self":1}')


def test_everything_is_put_back() -> None:
    before = logging.Logger.callHandlers, threading.Thread.start, sys.stdout, sys.stderr
    with captured():
        with captured():
            assert logging.Logger.callHandlers is not before[0]
        assert logging.Logger.callHandlers is not before[0]
    after = logging.Logger.callHandlers, threading.Thread.start, sys.stdout, sys.stderr
    assert after == before
