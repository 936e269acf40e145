"""`cortex jobs signal`, and the signals on a job's page."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from attrs import define

from cortex.postgres.database import Profile
from cortex.store import jobs, signals
from tests.signals.conftest import Stage
from tests.support.command_line import Cortex
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session


@define
class Desk:
    """The command line beside jobs of the shared database."""

    run: Cortex
    stage: Stage

    def received(self, job_id: UUID) -> list[tuple[str, object]]:
        rows = self.stage.store(signals.of_job, job_id, limit=100)
        return [(each.name, each.payload) for each in rows]


@pytest.fixture
def desk(shared_database: str, tmp_path: Path) -> Iterator[Desk]:
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as store:
        yield Desk(Cortex(tmp_path, shared_database), Stage(shared_database, store))


def test_a_signal_is_sent_and_shown(desk: Desk) -> None:
    claim = desk.stage.running()
    job_id = claim.lease.job_id
    send = ("jobs", "signal", str(job_id))
    ended = desk.run(*send, "paid", "--data", '{"euros": 48}', "--as", "ana")
    assert (ended.code, ended.err) == (0, "")
    document = desk.run(*send, "shipped", "--json").document["signal"]
    assert (document["name"], document["job"], document["key"]) == ("shipped", str(job_id), None)
    assert desk.received(job_id) == [("paid", {"euros": 48}), ("shipped", None)]
    desk.stage.take(claim, step="pay", name="paid")
    shown = desk.run("jobs", "show", str(job_id)).out
    assert "paid by " in shown
    assert "ana" in shown
    assert '· {"euros":48} · received by step pay' in shown
    assert "shipped" in shown.partition("signals")[2]
    assert "· null · waits" in shown
    listed = desk.run("jobs", "show", str(job_id), "--json").document["signals"]
    assert [each["name"] for each in listed] == ["paid", "shipped"]


def test_a_signal_to_a_key_comes_from_a_file(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "paid.json").write_text("[1, 2]")
    key = f"order-{new_id()}"
    ended = desk.run("jobs", "signal", "paid", "--key", key, "--data", "@paid.json")
    assert ended.code == 0
    piped = desk.run("jobs", "signal", "paid", "--key", key, "--data", "-", stdin=b'"x"')
    assert piped.code == 0
    claim = desk.stage.running()
    taken = [desk.stage.take(claim, step, name="paid", key=key) for step in ("a", "b")]
    assert [each and json.loads(each.payload) for each in taken] == [[1, 2], "x"]


def test_an_idempotency_key_sends_one_signal(desk: Desk) -> None:
    job_id, key = desk.stage.submit(), str(new_id())
    words = ("jobs", "signal", str(job_id), "paid", "--idempotency-key", key)
    first, again = desk.run(*words, "--json"), desk.run(*words, "--json")
    assert first.document["signal"]["id"] == again.document["signal"]["id"]
    other = desk.run(*words, "--data", "1")
    assert (other.code, "was used for another request" in other.err) == (2, True)
    assert len(desk.received(job_id)) == 1


REFUSED: list[tuple[list[str], str]] = [
    (["ID"], "a signal needs ID and NAME, got"),
    (["ID", "paid", "now"], "a signal needs ID and NAME, got"),
    (["ID", "paid", "--key", "k"], "signal 'paid' is for job"),
    (["ID", ""], "signal name '' is not text of 1 to 100 printable characters"),
    (["ID", "a\x1b[31m"], "signal name 'a\\x1b[31m' is not text"),
    (["paid", "--key", ""], "signal key '' is not text of 1 to 500"),
    (["ID", "paid", "--data", "{euros: 48}"], "--data of signal 'paid' is not JSON"),
    (["ID", "paid", "--data", "NaN"], "--data of signal 'paid' is nan, which JSON does not have"),
    (["ID", "paid", "--data", "[1e400]"], "--data of signal 'paid': [0] is inf, which JSON"),
    (["ID", "paid", "--data", "1" + "0" * 30], "has a number that does not fit 64 bits"),
    (["ID", "paid", "--data", "@nowhere.json"], "cannot read the --data of signal 'paid'"),
    (["ID", "paid", "--data", json.dumps("x" * 300_000)], "is 300,002 bytes of JSON, more than"),
    (["ID", "paid", "--data", "@large.json"], "is larger than 262,144 bytes"),
]


@pytest.mark.parametrize("words, message", REFUSED)
def test_an_unfit_signal_is_refused_in_one_line(
    desk: Desk, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "large.json").write_text(json.dumps("x" * 1_000_000))
    job_id = desk.stage.submit()
    given = [str(job_id) if each == "ID" else each for each in words]
    ended = desk.run("jobs", "signal", *given)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert "\x1b" not in ended.err
    assert desk.received(job_id) == []


def test_a_signal_to_no_job_or_an_ended_one_is_refused(desk: Desk) -> None:
    unknown = desk.run("jobs", "signal", str(new_id()), "paid")
    assert (unknown.code, "does not exist" in unknown.err) == (3, True), unknown.err
    job_id = desk.stage.submit()
    desk.stage.store(jobs.cancel, job_id, by="ana", reason="x")
    ended = desk.run("jobs", "signal", str(job_id), "paid")
    assert ended.code == 5
    assert f"job {job_id} is CANCELLED: it has ended and receives no signals" in ended.err
    assert "submit it anew, or send the signal to a key" in ended.err


def test_hostile_text_in_signals_does_not_reach_the_terminal(desk: Desk) -> None:
    job_id = desk.stage.submit()
    desk.stage.store(signals.send, "\u202epaid", '"\\u001b[31mred\\u0007"', job=job_id)
    shown = desk.run("jobs", "show", str(job_id)).out
    assert "⟦U+202E⟧paid" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_other_words_lead_to_the_command(desk: Desk) -> None:
    job_id = desk.stage.submit()
    assert desk.run("signal", str(job_id), "paid").code == 0
    assert desk.run("jobs", "send", str(job_id), "paid").code == 0
    assert [each[0] for each in desk.received(job_id)] == ["paid", "paid"]


def test_shells_complete_the_job_and_then_what_jobs_wait_for(desk: Desk) -> None:
    job_id, name = desk.stage.waiting("awaited-payment"), "awaited-payment"

    def completed(*words: str) -> list[str]:
        line = ("cortex", "jobs", "signal", *words)
        env = {
            "_CORTEX_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        }
        return [each.removeprefix("plain,") for each in desk.run(env=env).out.split()]

    assert completed(str(job_id)[:13]) == [str(job_id)]
    assert completed(str(job_id), "awaited") == [name]
    assert completed("--key", "order-1", "awaited") == [name]
