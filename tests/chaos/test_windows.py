"""What a pod is in the midst of is seen, and a pod is caught there."""

from collections.abc import Iterable

import asyncpg
import pytest

from chaos.windows import Window, catch, look
from chaos.workloads.program import Op
from tests.support.eventually import eventually
from tests.support.playing import Playing, state_of

pytestmark = pytest.mark.timeout(120)


def seen(playing: Playing) -> set[Window]:
    """In which windows any pod is."""
    found: Iterable[frozenset[Window]] = playing(look(playing.stage, *playing.stage.pods)).values()
    return set().union(*found)


def test_a_pod_at_rest_is_in_none(playing: Playing) -> None:
    eventually(lambda: not seen(playing) - {Window.COMMIT}, what="all is at rest", within_s=30)


def test_an_effect_is_under_way_and_then_it_has_taken_place(playing: Playing) -> None:
    playing.submit((Op.IDEMPOTENT, 3_000))
    eventually(lambda: Window.EFFECT_CALL in seen(playing), what="the call is seen")
    eventually(lambda: Window.UNRECORDED in seen(playing), what="the effect is seen")
    eventually(lambda: not seen(playing) - {Window.COMMIT}, what="and its end")


def test_a_model_call_is_seen_while_it_is_open(playing: Playing) -> None:
    playing.submit((Op.MODEL, 1_500))
    eventually(lambda: Window.MODEL_CALL in seen(playing), what="the call is seen", within_s=30)
    eventually(lambda: Window.MODEL_CALL not in seen(playing), what="and its end")


def test_a_decision_is_seen_until_its_step_is_written(playing: Playing) -> None:
    key = playing.submit((Op.IDEMPOTENT, 3_000))
    running = "SELECT id FROM cortex.job WHERE payload->>'key' = $1 AND pod_id IS NOT NULL"
    (job,) = eventually(lambda: playing.sql(running, key), what="it runs")
    decided = """
        INSERT INTO cortex.approval (id, job_id, lineage_id, attempt, key, tenant, asked,
            asked_digest, arguments, digest, risk, people, on_deny, on_expiry, expires_at, status,
            decided_at, decided_by)
        VALUES (cortex.uuid7(), $1, $1, 1, 'gate', 'default', '{}', sha256('{}'), '{}',
            sha256('{}'), 'LOW', 1, 'fail', 'fail', cortex.now() + interval '1 hour', 'APPROVED',
            cortex.now(), 'ann')
    """
    playing.sql(decided, job["id"])
    assert Window.DECISION in seen(playing)
    eventually(lambda: Window.DECISION not in seen(playing), what="its job has ended")


@pytest.mark.parametrize("prepared", [None, "SELECT 2"])
def test_rows_are_locked_by_who_does_not_go_on(playing: Playing, prepared: str | None) -> None:
    """Between two statements, or with one that is prepared and not asked for."""
    pod = playing.pod(0)

    async def locked() -> frozenset[Window]:
        connection = await asyncpg.connect(pod.line.dsn)
        try:
            await connection.execute("BEGIN")
            await connection.fetch("SELECT FROM cortex.pod FOR UPDATE")
            if prepared is not None:
                await connection.prepare(prepared)
            return (await look(playing.stage, pod))[pod.name]
        finally:
            connection.terminate()

    assert Window.ROW_LOCK in playing(locked())


def test_a_write_is_seen_before_it_is_answered(playing: Playing) -> None:
    pod = playing.pod(0)

    async def caught() -> bool:
        result = await catch(playing.stage, [pod], aim=Window.COMMIT)
        assert result is not None
        try:
            return Window.COMMIT in result.windows and state_of(result.pod) == "T"
        finally:
            result.pod.cont()

    assert playing(caught())


def test_who_cannot_be_caught_there_is_stopped_as_it_is(playing: Playing) -> None:
    async def caught() -> frozenset[Window]:
        result = await catch(playing.stage, list(playing.stage.pods), aim=Window.DECISION)
        assert result is not None
        assert result.pod.is_stopped
        result.pod.cont()
        return result.windows

    assert Window.DECISION not in playing(caught())


def test_a_stage_without_pods_has_nobody_to_catch(playing: Playing) -> None:
    assert playing(catch(playing.stage, [], aim=None)) is None
