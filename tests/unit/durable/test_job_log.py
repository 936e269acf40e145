"""The buffer of log lines: bounds, counts, and lines that nobody should write."""

import json
from uuid import UUID

import pytest

from cortex.domain import redaction
from cortex.domain.errors import InvalidValueError
from cortex.domain.job import Claim, Lease
from cortex.domain.log_line import FIELDS_MAX, MESSAGE_CHARS_MAX, Level, LogLine, kept_fields
from cortex.durable import job_log
from cortex.durable.job_log import BURST, OPEN_S, RATE, REMARK_S, LineBuffer, Why
from tests.support.knowing import forget_secrets
from tests.support.records.factories import a_claim

SECRET = "sk-0f9e8d7c5a"
FOR_EVER = 10**6


class Log:
    """A buffer on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.woken = 0
        self.buffer = LineBuffer(lambda: self.now, wake=self._wake)
        self.claim = a_claim(lease=Lease(UUID(int=7), 2), type="speak")

    def _wake(self) -> None:
        self.woken += 1

    def add(self, text: str, **fields: object) -> None:
        self.buffer.add(self.claim, Level.INFO, text, step="s", source="shop", fields=fields)

    def write(self, text: str, *, claim: Claim | None = None, thread: int = 1) -> None:
        self.buffer.write(claim or self.claim, text, step=None, stream="stdout", thread=thread)

    def take(self) -> list[LogLine]:
        return self.buffer.take(FOR_EVER)

    def texts(self) -> list[str]:
        return [line.message for line in self.take()]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_line_has_its_attempt_step_and_fields(log: Log) -> None:
    log.add("paid", order=8, by=UUID(int=1), ok=True)
    (line,) = log.take()
    assert (line.lease, line.job_type, line.step) == (log.claim.lease, "speak", "s")
    assert (line.source, line.level) == ("shop", Level.INFO)
    assert json.loads(line.fields or "") == {"order": 8, "by": str(UUID(int=1)), "ok": True}
    assert log.woken == 1


def test_printed_text_becomes_lines_when_they_end(log: Log) -> None:
    log.write("one\n\ntwo")
    log.write("of a thread\n", thread=2)
    assert log.texts() == ["one", "of a thread"]
    log.write(" and more\nthree")
    assert log.texts() == ["two and more"]
    log.now = OPEN_S
    (line,) = log.take()
    assert (line.message, line.written_at) == ("three", 0.0)
    assert log.take() == []


def test_an_endless_line_is_cut_and_says_how_long_it_was(log: Log) -> None:
    for _ in range(1_000):
        log.write("x" * 1_000)
    log.write("\n")
    log.add("y" * 1_000_000)
    first, second = log.texts()
    for text in (first, second):
        assert len(text) < MESSAGE_CHARS_MAX + 50
        assert text.endswith("… (1,000,000 characters)")


def test_secrets_are_masked_also_where_a_line_is_cut(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_secrets(monkeypatch)
    redaction.register("TOKEN", SECRET)
    for before in range(MESSAGE_CHARS_MAX - len(SECRET) - 2, MESSAGE_CHARS_MAX + 2):
        log.add("x" * before + SECRET + "y" * 600, token=SECRET, deep={"t": [SECRET]})
    log.write(f"{SECRET[:5]}")
    log.write(f"{SECRET[5:]}\n")
    for line in log.take():
        assert "sk-0" not in line.message + (line.fields or "")
    assert log.buffer.dropped_counts[Why.RATE] == 0


def test_a_printed_secret_of_several_lines_is_not_kept(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_secrets(monkeypatch)
    redaction.register("KEY", "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----")
    log.write("it is -----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----")
    log.write("\n")
    assert [line.message for line in log.take()] == ["it is [secret KEY, 63 characters]"]


def test_text_that_postgres_cannot_store_becomes_visible(log: Log) -> None:
    log.add("nul \0 half \ud800", **{"a\0": "\udfff", "b": {"c": "\0"}, "d": float("nan")})
    (line,) = log.take()
    assert line.message == "nul \ufffd half \ufffd"
    assert "\\u0000" not in (line.fields or "")
    assert json.loads(line.fields or "")["d"] == "nan"


def test_fields_that_fail_or_are_too_many_are_no_trouble() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise ValueError("no")

        __repr__ = __str__

    text = kept_fields({"a": Hostile(), "b": [Hostile()], "c": {1: 2}, "n": 2**70})
    assert json.loads(text or "")["a"] == "<Hostile that cannot be shown>"
    many = json.loads(kept_fields({str(n): n for n in range(100)}) or "")
    assert len(many) == FIELDS_MAX + 1
    assert many["…"] == f"{100 - FIELDS_MAX} more fields"
    long = json.loads(kept_fields({"a": "x" * 10**6, "b": "y" * 10**6}) or "")
    assert len(long["a"]) < 1_100
    assert kept_fields({}) is None


def test_a_flood_is_dropped_counted_and_remarked_once_a_second(log: Log) -> None:
    for n in range(100_000):
        log.add(f"line {n}")
    lines = log.take()
    kept = [line for line in lines if line.dropped is None]
    assert len(kept) == BURST
    (remark,) = (line for line in lines if line.dropped is not None)
    assert remark.dropped == 100_000 - BURST == log.buffer.dropped_counts[Why.RATE]
    assert "80,000 lines are missing here" in remark.message
    for _ in range(3):
        log.add("more")
    assert log.take() == []
    log.now = REMARK_S
    assert [line.dropped for line in log.take()] == [3]
    for _ in range(int(RATE) + 1):
        log.add("after a second")
    assert len([line for line in log.take() if line.dropped is None]) == RATE


def test_an_attempt_keeps_no_more_than_its_share(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "ATTEMPT_LINES_MAX", 3)
    for _ in range(5):
        log.add("line")
    *kept, remark = log.take()
    assert len(kept) == 3
    assert (remark.dropped, log.buffer.dropped_counts[Why.ATTEMPT]) == (2, 2)
    other = a_claim(lease=Lease(UUID(int=7), 3))
    log.write("the next attempt\n", claim=other)
    assert log.texts() == ["the next attempt"]


def test_a_full_buffer_drops_what_is_new(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "LINES_MAX", 2)
    for n in range(5):
        log.add(f"{n}")
    assert log.texts()[:2] == ["0", "1"]
    assert log.buffer.dropped_counts[Why.BUFFER] == 3


def test_lines_that_could_not_be_kept_are_remarked(log: Log) -> None:
    log.add("a")
    log.add("b")
    log.buffer.give_up(log.take(), Why.REFUSED)
    (remark,) = log.take()
    assert (remark.dropped, "refused" in remark.message) == (2, True)


def test_a_closed_buffer_only_counts(log: Log) -> None:
    log.buffer.is_closed = True
    log.add("of a thread that outlives the pod")
    assert [line.dropped for line in log.take()] == [1]


def test_another_process_hands_on_lines_of_one_attempt_only(log: Log) -> None:
    log.add("own")
    late = a_claim(lease=Lease(UUID(int=8), 1))
    log.write("of the job before\n", claim=late)
    relay = log.buffer.take_to_relay(log.claim.lease, 100)
    assert ([line.message for line in relay.lines], relay.late_count) == (["own"], 1)
    pod = Log()
    pod.now = 5.0
    pod.buffer.relay(pod.claim, relay.lines[0])
    (line,) = pod.take()
    assert (line.message, line.step, line.lease) == ("own", "s", pod.claim.lease)


@pytest.mark.parametrize(
    "number, level",
    [(0, Level.DEBUG), (10, Level.DEBUG), (25, Level.INFO), (30, Level.WARNING), (99, 50)],
)
def test_any_number_has_a_level(number: int, level: int) -> None:
    assert Level.of_number(number) == level


def test_an_unknown_level_is_refused() -> None:
    assert Level.of_word("WARN") is Level.WARNING
    with pytest.raises(InvalidValueError, match="'loud' is unknown"):
        Level.of_word("loud")
