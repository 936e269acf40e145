"""Supervision: restarts and their timing, escalation, cancellation, base exceptions."""

import random
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.actors.mailbox import Mailbox
from cortex.actors.phases import Outcome, ShutdownLog
from cortex.actors.restart import RestartPolicy
from cortex.actors.supervisor import (
    ActorReturned,
    ChildState,
    ChildStatus,
    Supervisor,
    SupervisorEscalated,
    open_supervisor,
)
from cortex.domain.backoff import Backoff

Status = trio.TaskStatus[None]
Run = Callable[[Status], Awaitable[None]]
LogLines = list[MutableMapping[str, Any]]
POLICY = RestartPolicy(max_restarts=3, window_s=60, backoff=Backoff(base_s=1.0, cap_s=4.0))


class Scripted:
    """Plays one run after another, the last one again and again, and notes when each began."""

    def __init__(self, name: str, *runs: Run) -> None:
        self.name = name
        self.began_at: list[float] = []
        self._runs = list(runs)

    async def run(self, *, task_status: Status = trio.TASK_STATUS_IGNORED) -> None:
        self.began_at.append(trio.current_time())
        await self._runs[min(len(self.began_at), len(self._runs)) - 1](task_status)


async def serve(status: Status) -> None:
    status.started()
    await trio.sleep_forever()


async def finish(status: Status) -> None:
    status.started()
    await trio.lowlevel.checkpoint()


async def never_ready(status: Status) -> None:
    del status
    await trio.sleep_forever()


def crash(error: BaseException, *, after_s: float = 0.0, ready: bool = True) -> Run:
    async def run(status: Status) -> None:
        if ready:
            status.started()
        with trio.move_on_after(after_s):
            await trio.sleep_forever()
        raise error

    return run


def crash_when_cancelled(error: Exception) -> Run:
    async def run(status: Status) -> None:
        status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise error

    return run


def crash_in_nursery_when_cancelled(error: Exception) -> Run:
    """Raise a group of Cancelled and the error, as an actor with a nursery of its own does."""

    async def run(status: Status) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await crash_when_cancelled(error)(status)

    return run


def supervised(
    *,
    restart: RestartPolicy = POLICY,
    seed: int = 1,
    grace_s: float = 0.0,
    log: ShutdownLog | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    return open_supervisor(
        "test",
        rng=random.Random(seed),
        restart=restart,
        log=log or ShutdownLog(),
        grace_s=grace_s,
    )


def status_of(sup: Supervisor, name: str) -> ChildStatus:
    return next(child for child in sup.children() if child.name == name)


def crashed_as(event: str, lines: LogLines) -> list[str]:
    """Return the actors named by the log lines of that event."""
    return [line["actor"] for line in lines if line["event"] == event]


async def reach(sup: Supervisor, name: str, state: ChildState) -> None:
    """Let the mock clock run until the child is in that state."""
    with trio.fail_after(1000):
        while status_of(sup, name).state is not state:
            with trio.move_on_after(0.01):
                await trio.sleep_forever()


async def reach_restart(sup: Supervisor, name: str, nth: int) -> None:
    """Let the mock clock run until the child runs again after its `nth` restart."""
    with trio.fail_after(1000):
        while status_of(sup, name).restarts < nth:
            await reach(sup, name, ChildState.BACKING_OFF)
            await reach(sup, name, ChildState.RUNNING)


# --- starting


async def test_start_returns_when_the_actor_is_ready(autojump_clock: MockClock) -> None:
    async def ready_later(status: Status) -> None:
        with trio.move_on_after(5):
            await trio.sleep_forever()
        await serve(status)

    async with supervised() as sup:
        await sup.start(Scripted("slow", ready_later))
        assert trio.current_time() == 5
        assert sup.children() == (ChildStatus("slow", ChildState.RUNNING, 0, None),)


async def test_a_crash_before_the_first_readiness_is_raised_by_start(
    autojump_clock: MockClock,
) -> None:
    error = ValueError("no port")
    actor = Scripted("http", crash(error, ready=False), serve)
    async with supervised() as sup:
        with pytest.raises(ValueError, match="no port") as caught:
            await sup.start(actor)
        assert caught.value is error
        assert sup.children() == ()
        await sup.start(actor)  # the name is free again
    assert len(actor.began_at) == 2


@pytest.mark.parametrize("permanent", [False, True])
async def test_a_return_before_readiness_is_raised_by_start(permanent: bool) -> None:
    async def return_at_once(status: Status) -> None:
        del status

    async with supervised() as sup:
        with pytest.raises(RuntimeError, match="'hasty' ended before it was ready"):
            await sup.start(
                Scripted("hasty", return_at_once), restart=RestartPolicy(is_permanent=permanent)
            )
        assert sup.children() == ()


async def test_a_cancelled_start_leaves_no_child(autojump_clock: MockClock) -> None:
    async with supervised() as sup:
        with trio.move_on_after(3) as scope:
            await sup.start(Scripted("slow", never_ready))
        assert scope.cancelled_caught
        assert sup.children() == ()
        assert not sup.level.nursery.child_tasks


async def test_a_child_cancelled_while_starting_fails_its_start(autojump_clock: MockClock) -> None:
    async def start(sup: Supervisor) -> None:
        with pytest.raises(RuntimeError, match="ended before it was ready"):
            await sup.start(Scripted("slow", never_ready))

    async with supervised() as sup, trio.open_nursery() as nursery:
        nursery.start_soon(start, sup)
        await wait_all_tasks_blocked()
        sup.cancel("slow")
    assert sup.children() == ()


async def test_a_living_name_cannot_be_started_twice(autojump_clock: MockClock) -> None:
    async with supervised() as sup:
        await sup.start(Scripted("a", serve))
        with pytest.raises(ValueError, match="'test' has an actor 'a' already"):
            await sup.start(Scripted("a", serve))
        sup.cancel("a")
        await reach(sup, "a", ChildState.CANCELLED)
        await sup.start(Scripted("a", serve))
        assert [child.state for child in sup.children()] == [ChildState.RUNNING]


# --- restarting


async def test_a_crashed_child_is_restarted_after_jittered_backoff(
    autojump_clock: MockClock,
) -> None:
    boom = crash(ValueError("boom"), after_s=2)
    actor = Scripted("a", boom, boom, boom, serve)
    async with supervised(seed=7) as sup:
        await sup.start(actor)
        await reach_restart(sup, "a", 3)
        status = status_of(sup, "a")
    rng = random.Random(7)
    expected = [0.0]
    for longest_s in (1.0, 2.0, 4.0):
        expected.append(expected[-1] + 2 + longest_s * rng.uniform(0.5, 1.0))
    assert actor.began_at == pytest.approx(expected)
    assert (status.restarts, str(status.last_error)) == (3, "boom")


async def test_a_group_of_exceptions_is_a_crash_like_any_other(autojump_clock: MockClock) -> None:
    group = ExceptionGroup("two", [ValueError("a"), OSError("b")])
    actor = Scripted("a", crash(group), serve)
    async with supervised() as sup:
        await sup.start(actor)
        await reach_restart(sup, "a", 1)
        assert status_of(sup, "a").last_error is group


async def test_a_crash_before_readiness_counts_once_it_was_ready(autojump_clock: MockClock) -> None:
    actor = Scripted("a", crash(ValueError("1")), crash(ValueError("2"), ready=False), serve)
    async with supervised() as sup:
        await sup.start(actor)
        await reach_restart(sup, "a", 2)
    assert str(status_of(sup, "a").last_error) == "2"
    assert len(actor.began_at) == 3


async def test_siblings_of_a_crashed_child_keep_running(autojump_clock: MockClock) -> None:
    sibling = Scripted("sibling", serve)
    async with supervised() as sup:
        await sup.start(sibling)
        await sup.start(Scripted("a", crash(ValueError("boom")), serve))
        await reach_restart(sup, "a", 1)
        assert status_of(sup, "sibling") == ChildStatus("sibling", ChildState.RUNNING, 0, None)
    assert len(sibling.began_at) == 1


async def test_each_crash_is_logged_with_the_name_of_its_actor(
    log_lines: LogLines, autojump_clock: MockClock
) -> None:
    error = ValueError("boom")
    async with supervised() as sup:
        await sup.start(Scripted("a", crash(error), crash(error), serve))
        await reach_restart(sup, "a", 2)
    crashes = [line for line in log_lines if line["event"] == "actor crashed"]
    assert [(c["actor"], c["supervisor"], c["restarts"]) for c in crashes] == [
        ("a", "test", 0),
        ("a", "test", 1),
    ]
    assert all(c["exc_info"] is error and c["log_level"] == "error" for c in crashes)
    assert all(c["restart_in_s"] > 0 for c in crashes)


# --- children that return


async def test_a_child_that_returns_is_finished(autojump_clock: MockClock) -> None:
    actor = Scripted("once", finish)
    async with supervised() as sup:
        await sup.start(actor)
        await reach(sup, "once", ChildState.FINISHED)
        sup.cancel("once")  # nothing left to cancel
    assert sup.children() == (ChildStatus("once", ChildState.FINISHED, 0, None),)
    assert len(actor.began_at) == 1


async def test_a_permanent_child_that_returns_is_restarted(autojump_clock: MockClock) -> None:
    actor = Scripted("loop", finish, serve)
    async with supervised() as sup:
        await sup.start(actor, restart=RestartPolicy(is_permanent=True))
        await reach_restart(sup, "loop", 1)
        assert isinstance(status_of(sup, "loop").last_error, ActorReturned)
    assert len(actor.began_at) == 2


# --- escalating


async def test_too_many_crashes_end_the_supervisor(
    log_lines: LogLines, autojump_clock: MockClock
) -> None:
    actor, sibling = Scripted("a", crash(ValueError("boom"))), Scripted("sibling", serve)
    with pytest.RaisesGroup(SupervisorEscalated) as caught:
        async with supervised() as sup:
            await sup.start(sibling)
            await sup.start(actor)
            await trio.sleep_forever()
    (escalated,) = caught.value.exceptions
    assert isinstance(escalated, SupervisorEscalated)
    assert (escalated.child, escalated.crash_count, escalated.window_s) == ("a", 4, 60)
    assert str(escalated) == "actor 'a' crashed 4 times within 60 s"
    assert isinstance(escalated.__cause__, ValueError)
    assert len(actor.began_at) == 4
    assert [child.state for child in sup.children()] == [ChildState.CANCELLED, ChildState.FAILED]
    assert crashed_as("actor crashed too often", log_lines) == ["a"]


@pytest.mark.parametrize("lives_s, escalates", [(18.0, True), (22.0, False)])
async def test_only_crashes_within_the_window_count(
    lives_s: float, escalates: bool, autojump_clock: MockClock
) -> None:
    """Three crashes in 60 s are allowed, and a back-off of 1 s makes a cycle of it."""
    policy = RestartPolicy(max_restarts=3, window_s=60, backoff=Backoff(base_s=1.0, cap_s=1.0))
    survived = trio.Event()

    async def survive(status: Status) -> None:
        status.started()
        survived.set()

    actor = Scripted("a", *[crash(ValueError("boom"), after_s=lives_s)] * 20, survive)
    escalated = False
    try:
        async with supervised(restart=policy) as sup:
            await sup.start(actor)
            await survived.wait()
    except* SupervisorEscalated:
        escalated = True
    assert escalated is escalates
    assert len(actor.began_at) == (4 if escalates else 21)


async def test_no_restarts_allowed_escalates_at_the_first_crash(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(SupervisorEscalated):
        async with supervised(restart=RestartPolicy(max_restarts=0)) as sup:
            await sup.start(Scripted("a", crash(ValueError("boom"))))
            await trio.sleep_forever()


# --- cancelling one child


async def test_a_cancelled_child_ends_alone_and_for_good(autojump_clock: MockClock) -> None:
    actor = Scripted("a", serve)
    async with supervised() as sup:
        await sup.start(actor)
        await sup.start(Scripted("b", serve))
        sup.cancel("a")
        await reach(sup, "a", ChildState.CANCELLED)
        assert status_of(sup, "b").state is ChildState.RUNNING
        with pytest.raises(KeyError):
            sup.cancel("nobody")
    assert len(actor.began_at) == 1


async def test_a_child_can_be_cancelled_while_backing_off(autojump_clock: MockClock) -> None:
    actor = Scripted("a", crash(ValueError("boom")), serve)
    async with supervised() as sup:
        await sup.start(actor)
        await reach(sup, "a", ChildState.BACKING_OFF)
        sup.cancel("a")
        await reach(sup, "a", ChildState.CANCELLED)
    assert len(actor.began_at) == 1


@pytest.mark.parametrize("run", [crash_when_cancelled, crash_in_nursery_when_cancelled])
async def test_an_error_of_a_cancelled_child_is_logged_and_kept(
    run: Callable[[Exception], Run], log_lines: LogLines, autojump_clock: MockClock
) -> None:
    async with supervised() as sup:
        await sup.start(Scripted("a", run(ValueError("cleanup"))))
        sup.cancel("a")
        await reach(sup, "a", ChildState.FAILED)
        assert "cleanup" in repr(status_of(sup, "a").last_error)
    assert crashed_as("actor crashed while being cancelled", log_lines) == ["a"]


async def test_a_permanent_child_may_return_when_it_is_cancelled(
    log_lines: LogLines, autojump_clock: MockClock
) -> None:
    async def last_flush(status: Status) -> None:
        status.started()
        with trio.move_on_after(1, shield=True):
            await trio.sleep_forever()

    actor = Scripted("a", last_flush)
    async with supervised(restart=RestartPolicy(is_permanent=True)) as sup:
        await sup.start(actor)
        sup.cancel("a")
        await reach(sup, "a", ChildState.FINISHED)
    assert len(actor.began_at) == 1
    assert crashed_as("actor crashed", log_lines) == []


# --- what passes through


@pytest.mark.parametrize("run", [crash_when_cancelled, crash_in_nursery_when_cancelled])
async def test_outer_cancellation_keeps_errors_and_restarts_no_child(
    run: Callable[[Exception], Run], autojump_clock: MockClock
) -> None:
    actor = Scripted("a", run(ValueError("cleanup")))
    with pytest.RaisesGroup(ValueError, flatten_subgroups=True), trio.move_on_after(5):
        async with supervised() as sup:
            await sup.start(actor)
            await sup.start(Scripted("b", serve))
            await trio.sleep_forever()
    assert trio.current_time() == 5
    assert len(actor.began_at) == 1
    assert status_of(sup, "b").state is ChildState.CANCELLED


class Stop(BaseException):
    """Control flow that no code may absorb."""


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("grouped", [False, True])
async def test_base_exception_is_never_absorbed(
    error: BaseException, grouped: bool, autojump_clock: MockClock
) -> None:
    raised = BaseExceptionGroup("with it", [error, ValueError()]) if grouped else error
    actor = Scripted("a", crash(raised))
    expected = [type(error), ValueError] if grouped else [type(error)]
    with pytest.RaisesGroup(*expected, flatten_subgroups=True):
        async with supervised() as sup:
            await sup.start(actor)
            await trio.sleep_forever()
    assert len(actor.began_at) == 1
    assert status_of(sup, "a").state is ChildState.FAILED


# --- leaving


async def test_leaving_lets_a_permanent_child_return(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    mailbox = Mailbox[int]("m", bound=5)
    seen: list[int] = []

    async def drain(status: Status) -> None:
        status.started()
        while True:
            try:
                seen.extend(await mailbox.receive_batch(2))
            except trio.EndOfChannel:
                return

    actor = Scripted("committer", drain)
    async with supervised(restart=RestartPolicy(is_permanent=True), grace_s=5, log=log) as sup:
        await sup.start(actor)
        for item in range(4):
            mailbox.send_nowait(item)
        mailbox.close()
    assert seen == [0, 1, 2, 3]
    assert len(actor.began_at) == 1
    assert [record.outcome for record in log.records] == [Outcome.CLEAN]


async def test_a_child_that_crashes_within_the_grace_may_finish_its_work(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    async with supervised(grace_s=30, log=log) as sup:
        await sup.start(Scripted("a", crash(ValueError("boom"), after_s=3), finish))
    assert status_of(sup, "a") == ChildStatus(
        "a", ChildState.FINISHED, 1, status_of(sup, "a").last_error
    )
    assert [record.outcome for record in log.records] == [Outcome.CLEAN]


async def test_the_end_of_the_grace_cancels_children_that_back_off(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    policy = RestartPolicy(backoff=Backoff(base_s=10, cap_s=10))
    async with supervised(restart=policy, grace_s=3, log=log) as sup:
        await sup.start(Scripted("a", crash(ValueError("boom"), after_s=1)))
    assert trio.current_time() == 3
    assert status_of(sup, "a").state is ChildState.CANCELLED
    assert [record.outcome for record in log.records] == [Outcome.CUT]


# --- all at once


@pytest.mark.parametrize("seed", range(20))
async def test_children_with_random_lives_end_in_their_earned_state(
    seed: int, autojump_clock: MockClock
) -> None:
    """Actors crash, return and are cancelled at random; each ends in the state that it earned."""
    trio._core._run._r.seed(seed)
    rng = random.Random(seed)
    patient = RestartPolicy(max_restarts=1000, window_s=1e6, backoff=Backoff(base_s=0.1, cap_s=1))
    running: set[str] = set()

    def life(name: str, *, ending: Run) -> Run:
        async def run(status: Status) -> None:
            assert name not in running, "two runs of one actor at once"
            running.add(name)
            try:
                await ending(status)
            finally:
                running.remove(name)

        return run

    def actor(name: str) -> Scripted:
        crash_count = rng.randint(0, 5)
        crashes = [crash(ValueError(name), after_s=rng.random()) for _ in range(crash_count)]
        last = rng.choice([serve, finish])
        return Scripted(name, *(life(name, ending=ending) for ending in [*crashes, last]))

    actors = [actor(f"actor {n}") for n in range(12)]
    async with supervised(restart=patient, seed=seed) as sup:
        async with trio.open_nursery() as nursery:
            for one in actors:
                nursery.start_soon(sup.start, one)
        for one in rng.sample(actors, 4):
            with trio.move_on_after(rng.random() * 3):
                await trio.sleep_forever()
            sup.cancel(one.name)
    assert running == set()
    assert not sup.level.nursery.child_tasks
    assert {child.name for child in sup.children()} == {one.name for one in actors}
    for one in actors:
        child = status_of(sup, one.name)
        assert child.state in (ChildState.FINISHED, ChildState.CANCELLED)
        assert len(one.began_at) in (child.restarts, child.restarts + 1)
