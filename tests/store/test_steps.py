"""Steps: what was committed comes back as it was, in order, and only its owner adds to it."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cortex.domain.errors import MisfitKind, RejectedError, UnfitCodeError
from cortex.domain.job import Claim, NumberedStep, Past, StepDone, StepKind, running_step_of
from cortex.domain.usage import Usage
from cortex.durable.codec import decode, encode
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import jobs, steps
from cortex.view.phrases import tokens
from tests.support.life import Life
from tests.support.records.approvals import Askers, a_request
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
reusing_the_job = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def numbered(claim: Claim, seq: int, **fields: Any) -> NumberedStep:
    defaults: dict[str, Any] = {
        "lease": claim.lease,
        "kind": StepKind.STEP,
        "key": f"step {seq}",
        "digest": b"digest",
        "duration_s": 0.5,
        "output": "null",
        "ended_at": 0.0,
        "tally": Tally(()),
    }
    return NumberedStep(StepDone(**defaults | fields), seq, f'{{"seq": {seq}}}')


@pytest.fixture
def pod_id() -> UUID:
    return new_id()


@pytest.fixture
def running(submit: Callable[..., UUID], claim: Callable[..., list[Claim]], pod_id: UUID) -> Claim:
    submit()
    return claim(pod_id)[0]


def test_steps_come_back_in_order_with_all_that_they_hold(
    store: Session, running: Claim, pod_id: UUID
) -> None:
    job_id = running.lease.job_id
    usage = Usage(input_tokens=3, cache_read_tokens=2)
    paid = {"usage": encode(usage, what="usage"), "cost_usd": Decimal("0.00001234")}
    asked = {"amid": "error", "parent_key": "step 1"}
    for step in (
        numbered(running, 1, output='{"n": 1}'),
        numbered(running, 2, kind=StepKind.MODEL, digest=b"\x00\xff", **paid | asked),
    ):
        assert store(steps.commit, pod_id=pod_id, operations=[step]) == {job_id}
    first, second = store(steps.of_job, job_id)
    assert (first.seq, first.key, decode(first.output)) == (1, "step 1", {"n": 1})
    assert (second.digest, second.usage, second.cost_usd) == (
        b"\x00\xff",
        usage,
        Decimal("0.00001234"),
    )
    assert (first.amid, first.parent_key) == (None, None)
    assert (second.amid, second.parent_key) == ("error", "step 1")
    shown = store(steps.page, job_id, after=1)
    assert [(row.seq, row.kind, (row.usage or {})["input_tokens"]) for row in shown] == [
        (2, "model", 3)
    ]
    assert (shown[0].finished_at - shown[0].started_at).total_seconds() == 0.5
    assert not hasattr(shown[0], "output")
    assert [row.output for row in store(steps.outputs, job_id)] == [{"n": 1}, None]
    assert store(jobs.show, job_id).checkpoint == {"seq": 2}


def test_a_batch_commits_for_those_that_own_their_jobs_and_names_them(
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    pod_id: UUID,
) -> None:
    for _ in range(3):
        submit()
    mine, lost, ended = claim(pod_id)
    store(steps.commit, pod_id=new_id(), operations=[])
    stranger = new_id()
    assert store(steps.commit, pod_id=stranger, operations=[numbered(lost, 1)]) == set()
    batch = [numbered(mine, 1), numbered(ended, 1)]
    both = {mine.lease.job_id, ended.lease.job_id}
    assert store(steps.commit, pod_id=pod_id, operations=batch) == both
    assert store(steps.commit, pod_id=pod_id, operations=batch) == set()  # again: no doubles
    assert store(steps.recorded, batch) == both
    assert store(steps.recorded, [numbered(mine, 1, key="another")]) == set()
    assert len(store(steps.of_job, mine.lease.job_id)) == 1


def test_a_step_without_a_head_is_the_head_itself(
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    pod_id: UUID,
) -> None:
    for _ in range(2):
        submit()
    plain, paid = claim(pod_id)
    batch = [attrs.evolve(numbered(plain, 1), head=None), numbered(paid, 1)]
    for _ in range(2):
        store(steps.commit, pod_id=pod_id, operations=batch)
    assert store(jobs.show, plain.lease.job_id).checkpoint == {
        "seq": 1,
        "kind": "step",
        "key": "step 1",
    }
    assert store(jobs.show, paid.lease.job_id).checkpoint == {"seq": 1}


def test_a_key_that_is_taken_is_refused_under_another_number(
    store: Session, running: Claim, pod_id: UUID
) -> None:
    store(steps.commit, pod_id=pod_id, operations=[numbered(running, 1, key="a")])
    with pytest.raises(RejectedError, match="job_step_key_once"):
        store(steps.commit, pod_id=pod_id, operations=[numbered(running, 2, key="a")])
    assert store(jobs.show, running.lease.job_id).checkpoint == {"seq": 1}


@reusing_the_job
@given(value=VALUES)
def test_a_replayed_output_is_byte_for_byte_the_live_one(
    store: Session, running: Claim, pod_id: UUID, value: Any
) -> None:
    """Job code may put it into a prompt: another order of keys would be another prompt."""
    assert_same(store, running, pod_id, value)


@pytest.mark.parametrize(
    "value", [0.1, 1.0, 1e15, 1.5e300, 5e-324, -2.5, 1e-7, 123456789.123456789], ids=str
)
def test_numbers_come_back_as_they_were(
    store: Session, running: Claim, pod_id: UUID, value: float
) -> None:
    assert_same(store, running, pod_id, [value])


@pytest.mark.parametrize("value", [1e16, -1.5e18, -0.0], ids=str)
def test_numbers_come_back_with_their_type_and_sign(
    store: Session, running: Claim, pod_id: UUID, value: float
) -> None:
    assert_same(store, running, pod_id, [value])


def assert_same(store: Session, running: Claim, pod_id: UUID, value: Any) -> None:
    job_id = running.lease.job_id
    seq = len(store(steps.of_job, job_id)) + 1
    text = encode(value, what="output")
    store(steps.commit, pod_id=pod_id, operations=[numbered(running, seq, output=text)])
    stored = store(steps.of_job, job_id)[-1]
    assert orjson.dumps(decode(stored.output)) == orjson.dumps(decode(text))


# --- patches, and what an attempt knows of the ones before it


@pytest.fixture
def life(store: Session, database: str) -> Life:
    made = Life(store, database)
    made.type()
    return made


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


def past(life: Life, claim: Claim) -> Past:
    job_id = claim.lease.job_id
    return life.call(
        steps.record_of, job_id, lineage_id=job_id, of_line=False, has_steps=True, has_open=True
    ).past


def test_a_record_knows_whether_all_of_it_was_made_by_the_same_code(life: Life) -> None:
    old, older, new = (life.pod(f"pod {n}", code=n) for n in ("1", "1", "2"))
    life.job()
    first = life.claim(old)
    assert past(life, first).is_same_code
    life.release(old, first, "handed_back")
    second = life.claim(older)
    assert past(life, second).is_same_code, "another pod with the same code"
    life.release(older, second, "handed_back")
    third = life.claim(new)
    assert not past(life, third).is_same_code
    life.release(new, third, "handed_back")
    assert not past(life, life.claim(old)).is_same_code


def test_pods_of_unknown_code_do_not_count_as_the_same(life: Life) -> None:
    pod = life.pod()
    life.job()
    life.release(pod, life.claim(pod), "handed_back")
    assert not past(life, life.claim(pod)).is_same_code


def test_a_list_counts_the_jobs_that_need_each_branch(life: Life) -> None:
    life.type("other")
    pod = life.pod("pod", "digest", "other")

    def begun(job_type: str = "digest") -> tuple[UUID, Claim]:
        job_id = life.job(job_type)
        claim = life.claim(pod, job_type)
        life.step(pod, claim, 1, "load")
        return job_id, claim

    old = [begun() for _ in range(2)]
    for _, claim in old:
        life.patch(pod, claim, 2, "new way", is_new=False)
    _, new = begun()
    life.patch(pod, new, 2, "new way", is_new=True)
    life.patch(pod, new, 3, "other way", is_new=True)
    undecided, _ = begun()
    begun("other")
    life.job()  # has not begun
    life.job()
    life.claim(pod)  # has begun and recorded nothing
    _, over = begun()
    life.patch(pod, over, 2, "new way", is_new=False)
    life.finish(pod, over)

    first, second = life.call(steps.patches)
    assert (first.patch, first.type, first.old, first.new, first.undecided) == (
        "new way",
        "digest",
        2,
        1,
        1,
    )
    assert (first.old_job, first.undecided_job) == (min(each for each, _ in old), undecided)
    assert (second.patch, second.old, second.new, second.undecided) == ("other way", 0, 1, 3)
    assert not first.is_capped


def test_a_question_of_an_earlier_attempt_is_known_until_its_decision_is_a_step(
    askers: Askers, database: str
) -> None:
    request = a_request()
    job_id = askers.ask(request)

    def questions() -> tuple[str, ...]:
        found: Past = askers.call(
            steps.record_of, job_id, lineage_id=job_id, of_line=False, has_steps=True, has_open=True
        ).past
        return found.questions

    askers.decide(request)
    askers.claim(job_id)
    assert questions() == (request.key,)
    sql(
        database,
        "INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at,"
        " finished_at, output) VALUES ($1, 1, 2, 'approval', $2, 'x', now(), now(), $3)",
        job_id,
        request.key,
        json.dumps({"approval_id": str(request.id), "is_approved": True}),
    )
    assert questions() == ()


def test_a_step_of_an_unknown_kind_does_not_fit_this_release(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, ids = life.pod(), [life.job(), life.job()]
    claims = {(claim := life.claim(pod)).lease.job_id: claim for _ in ids}
    life.step(pod, claims[ids[0]], 1, "fetch", is_paid=True)
    life.step(pod, claims[ids[1]], 1, "fetch")
    monkeypatch.setattr(steps, "_KINDS", frozenset(StepKind) - {StepKind.MODEL})
    with pytest.raises(UnfitCodeError, match=r"step 1 'fetch' .* kind 'model'") as caught:
        life.call(steps.of_job, ids[0])
    assert caught.value.kind is MisfitKind.STEP
    records = life.call(steps.records_of, life.call(steps.live_jobs, ids))
    found = {each.job.id: (len(each.steps), each.misfit is None) for each in records}
    assert found == {ids[0]: (0, False), ids[1]: (1, True)}


def test_a_running_step_of_an_unknown_kind_is_shown_as_it_is() -> None:
    stored = {"kind": "saga", "key": "book", "since": "2027-01-01T00:00:00+00:00", "more": 0}
    assert running_step_of(stored).kind == "saga"


def test_a_step_with_unknown_usage_does_not_fit_this_release(life: Life) -> None:
    pod, job_id = life.pod(), life.job()
    usage = '{"input_tokens": 3, "output_tokens": 1, "dream_tokens": 5}'
    paid = numbered(life.claim(pod), 1, kind=StepKind.MODEL, usage=usage, cost_usd=Decimal(1))
    life.call(steps.commit, pod_id=pod, operations=[paid])
    with pytest.raises(UnfitCodeError, match="dream_tokens"):
        life.call(steps.of_job, job_id)
    (row,) = life.call(steps.page, job_id)
    assert tokens(row.usage or {}) == tokens({"input_tokens": 3, "output_tokens": 1})
