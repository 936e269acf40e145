"""The runs that expose mutants: short, each with just enough to break a few rules.

The seed decides when each job is submitted, the keys, and with them people's decisions.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field, frozen

from chaos.cluster.quiet import Patience
from chaos.cluster.scale import SCALED, Scale
from chaos.cluster.stage import canary_of
from chaos.nemeses.kill_at_point import TAKEN_WITHIN_S
from chaos.nemeses.nemesis import Fault
from chaos.plan import JOB_TYPE, Options, Plan, make_plan
from chaos.quiet_kills import QuietKill, draw_quiet_kills
from chaos.run import Conditions
from chaos.windows import Window
from chaos.workloads.deployments import CODE_WAIT_S
from chaos.workloads.model_script import first_message
from chaos.workloads.order import Cancel, Order
from chaos.workloads.program import Op, Operation, Program
from chaos.workloads.ruled import draw_ruled
from chaos.workloads.schedules import Standing, draw_schedules
from chaos.workloads.signals import draw_signals
from cortex.crash_points import BETWEEN

Operations = tuple[Operation, ...]

CANCELLED_S: Final = 4.0
RUN_MIN_S: Final = 2.0
"""A run takes at least this long: by then the probe has recorded the database's clock."""


@frozen(kw_only=True)
class Scene:
    """One run, except for its seed."""

    name: str
    what: str
    jobs: tuple[Operations, ...]
    faults: tuple[Fault, ...] = ()
    pods: int = 3
    load_s: float = 0.5
    """During which all jobs are submitted, in order."""
    submitted_twice: int = 0
    """How many of the first jobs are submitted again at the end, under their keys."""
    cancelled: int = 0
    """How many of the first jobs are cancelled, long after they have ended."""
    scale: Scale = SCALED
    model: Mapping[Op, Mapping[str, Any] | Sequence[Mapping[str, Any]]] = field(factory=dict)
    """What the first calls of each step of a kind get instead of an answer, one after another. In
    an error message, {canary} is the secret that the pods use."""
    quiet_within_s: float = 30.0
    """After healing; a mutant may never come to rest."""

    delay_s: float = 0.0
    """Of each packet between pods and Postgres."""
    has_schedules: bool = False
    """Whether jobs are submitted by schedules besides, with instants before the run."""
    bursts: int = 0
    """How often several jobs of one key are submitted at once, of types with rules."""
    burst: str | None = None
    """The overlap of a schedule with instants to make up for, the last one on time."""
    away_s: float = 0.0
    """How long the receiver of messages refuses them, from the first one on."""
    old_job_count: int = 0
    """How many jobs ended long before; retention deletes those that nothing needs."""
    deploys: int = 0
    """How many jobs of two releases are submitted instead of `jobs`, while those take turns."""
    is_quiet: bool = False
    """Whether a pod is killed after all that, while nothing else is broken."""

    @property
    def conditions(self) -> Conditions:
        patience = Patience(idle_s=self.quiet_within_s, whole_s=self.quiet_within_s)
        return Conditions(scale=self.scale, patience=patience, delay_s=self.delay_s)

    def plan(self, seed: int) -> Plan:
        """Return everything that happens."""
        if self.deploys:
            return make_plan(
                Options(
                    seed=seed,
                    pods=self.pods,
                    duration_s=self.load_s,
                    jobs=self.deploys,
                    deploy=True,
                    faults=("kill",),
                )
            )
        dice = random.Random(f"{self.name} of {seed}")
        programs = tuple(
            Program(key=f"s{seed}-j{number}", operations=operations)
            for number, operations in enumerate(self.jobs)
        )
        times = sorted(dice.uniform(0, self.load_s) for _ in programs)
        times += [self.load_s] * self.submitted_twice
        orders = (
            Order(
                at_s=at_s,
                key=one.key,
                job_type=JOB_TYPE,
                payload=one.payload(),
                cancel=Cancel(by="ann", after_s=CANCELLED_S) if place < self.cancelled else None,
            )
            for place, (at_s, one) in enumerate(
                zip(times, programs + programs[: self.submitted_twice], strict=True)
            )
        )
        lasts_s = max([RUN_MIN_S, self.load_s, *(fault.at_s for fault in self.faults)])
        return Plan(
            options=Options(seed=seed, pods=self.pods, duration_s=lasts_s),
            programs=programs,
            orders=tuple(orders),
            faults=self.faults,
            schedules=(
                *(draw_schedules(duration_s=lasts_s) if self.has_schedules else ()),
                *(
                    [Standing(overlap=self.burst, past_count=4, is_burst=True)]
                    if self.burst is not None
                    else []
                ),
            ),
            signals=draw_signals(seed, programs, duration_s=self.load_s),
            ruled=draw_ruled(seed, duration_s=self.load_s, bursts=self.bursts),
            away_s=self.away_s,
            old_job_count=self.old_job_count,
            model_rules=tuple(rule for one in programs for rule in self._rules(one, seed)),
            quiet_kills=self._quiet_kills(seed) if self.is_quiet else (),
        )

    def _quiet_kills(self, seed: int) -> tuple[QuietKill, ...]:
        return draw_quiet_kills(
            seed=seed,
            duration_s=self.load_s,
            pods=self.pods,
            first=len(self.faults),
            own=None,
        )

    def _rules(self, program: Program, seed: int) -> Sequence[Mapping[str, Any]]:
        rules = []
        for place, one in enumerate(program.operations):
            own = self.model.get(one.op, ())
            for each in (own,) if isinstance(own, Mapping) else own:
                rule = {"prompt": first_message(program.key, f"{place}:{one.op}", one.takes_ms)}
                rule |= each
                if "message" in rule:
                    rule["message"] = rule["message"].format(canary=canary_of(seed))
                rules.append(rule)
        return rules


def _ops(**takes_ms: int) -> Operations:
    """For example `_ops(sleep=300, idempotent=50)`."""
    return tuple(Operation(op=Op(op), takes_ms=ms) for op, ms in takes_ms.items())


def _faults(*lines: tuple[float, str, dict[str, Any]]) -> tuple[Fault, ...]:
    """For each: when, which, and its detail; `for_s` in the detail is how long it holds."""
    return tuple(
        Fault(number=number, at_s=at_s, nemesis=name, for_s=detail.get("for_s", 0.0), detail=detail)
        for number, (at_s, name, detail) in enumerate(lines)
    )


def _at_point(point: str, *, place: int, nth: int = 1, outlives: bool = False) -> dict[str, Any]:
    """A pod is killed at a point, or stopped there until other pods have all of its jobs."""
    how = "stop" if outlives else "kill"
    lasts = {"until_taken": True, "for_s": TAKEN_WITHIN_S} if outlives else {}
    return {"point": point, "nth": nth, "how": how, "place": place, **lasts}


def _pause(*, place: int, leases: float) -> dict[str, Any]:
    return {
        "place": place,
        "aim": None,
        "into_drain_s": 0.0,
        "leases": leases,
        "for_s": leases * SCALED.zombie_s,
    }


def _held(target: str) -> dict[str, Any]:
    return {"target": target, "for_s": 2.5}


def _kill(*, place: int) -> dict[str, Any]:
    return {"place": place, "aim": Window.MODEL_CALL.value, "into_drain_s": 0.0}


def _drain(*, place: int) -> dict[str, Any]:
    return {"place": place, "rolls": False, "in_claim": True}


def _cut(*, place: int, for_s: float) -> dict[str, Any]:
    return {"whom": "one", "place": place, "writes": False, "way": "both", "for_s": for_s}


_STOPPED: Final = {"how": "stop", "leases": 4.0, "for_s": 4.0 * SCALED.zombie_s}
"""Until other pods count a pod as dead, and longer."""
_EFFECTS: Final = (_ops(idempotent=400), _ops(reconcilable=400), _ops(unsafe=400))
_TALK: Final = _ops(model=300, sleep=600)

SCENES: Final = {
    scene.name: scene
    for scene in (
        Scene(
            name="calm",
            what="a bit of everything, more jobs than slots; nothing goes wrong outside",
            jobs=(
                *(12 * (_ops(pure=0, idempotent=40, reconcilable=40),)),
                *(2 * (_ops(model=100),)),  # three early ends in a row would open their breaker
                *(30 * (_ops(approval=0),)),
                *(8 * (_ops(retry=50, sleep=300),)),
            ),
            submitted_twice=5,
            scale=evolve(SCALED, slots=5),
            model={
                Op.MODEL: {"times": 1, "fault": "early_end", "fault_after": 2},
                Op.RETRY: {"times": 2, "status": 529},
            },
        ),
        Scene(
            name="outlived",
            what="pods stop themselves at points, and continue while others run their jobs",
            jobs=60 * (_ops(sleep=2000),),
            faults=_faults(
                (0.3, "point", _at_point("before_step", place=0, outlives=True)),
                (0.3, "point", _at_point("before_beat", place=1, nth=5, outlives=True)),
            ),
            pods=5,
            load_s=8.0,
            scale=evolve(SCALED, slots=3),
        ),
        Scene(
            name="killed",
            what="pods are killed between effect and record and after an end; one stops",
            jobs=8 * (*_EFFECTS, _TALK),
            faults=_faults(
                (0.3, "point", _at_point("after_call", place=0, nth=2)),
                (0.3, "point", _at_point("after_finish", place=1)),
                (1.0, "stop", _pause(place=4, leases=0.6)),
                (1.5, "kill", _kill(place=2)),
                (2.5, "kill", _kill(place=3)),
                (3.5, "kill", _kill(place=2)),
            ),
            pods=5,
            load_s=8.0,
        ),
        Scene(
            name="signalled",
            what="jobs receive signals while pods are killed before they record them",
            jobs=12 * (_ops(signals=0),),
            faults=_faults(
                (0.3, "point", _at_point("after_take", place=0, nth=3)),
                (0.3, "point", _at_point("after_waits", place=1)),
            ),
            load_s=3.0,
        ),
        Scene(
            name="raced",
            what="jobs take signals beside timers while pods are killed before they record them",
            jobs=16 * (_ops(signals=0),),
            faults=_faults(
                (0.3, "point", _at_point("after_take", place=0, nth=9)),
                (0.3, "point", _at_point("after_take", place=1, nth=12)),
                (1.5, "point", _at_point("after_take", place=2, nth=7)),
            ),
            load_s=3.0,
        ),
        Scene(
            name="paused",
            what="the type, the queue and the tenant of all jobs are paused, one after the other",
            jobs=60 * (_ops(sleep=200),),
            faults=_faults(
                (0.5, "pause-jobs", _held("type:chaos_program")),
                (4.5, "pause-jobs", _held("queue:default")),
                (8.5, "pause-jobs", _held("tenant:default")),
            ),
            pods=2,
            load_s=12.0,
        ),
        Scene(
            name="ruled",
            what="several jobs of one key are submitted at once, and pods are killed in between",
            jobs=4 * (_ops(sleep=200),),
            faults=_faults(
                (0.5, "point", _at_point("before_step", place=0, nth=4)),
                (0.5, "point", _at_point("after_finish", place=1, nth=2)),
                (4.0, "point", _at_point("before_step", place=2, nth=4)),
            ),
            load_s=8.0,
            bursts=36,
        ),
        Scene(
            name="poisoned",
            what="a job kills each pod that starts it",
            jobs=(_ops(poison=0), *(3 * (_ops(sleep=300),))),
            scale=evolve(SCALED, deaths_max=2, settle_s=0.0),
            quiet_within_s=15.0,
        ),
        Scene(
            name="crashing",
            what="a job makes a step and kills its process, over and over, and continues each time",
            jobs=(
                tuple(Operation(op=Op.CRASH) for _ in range(5)),
                *(3 * (_ops(sleep=300),)),
            ),
            scale=evolve(SCALED, deaths_max=2, settle_s=0.0),
            quiet_within_s=25.0,
        ),
        Scene(
            name="strays",
            what="jobs raise what is meant for the interpreter; nothing goes wrong outside",
            jobs=(*(8 * (_ops(stray=0),)), *(3 * (_ops(sleep=300),))),
            pods=2,
            quiet_within_s=20.0,
        ),
        Scene(
            name="released",
            what="jobs are killed after an effect that their next attempt calls by another name",
            jobs=(*(2 * (_ops(renamed=50, crash=0),)), _ops(sleep=300)),
            pods=2,
        ),
        Scene(
            name="drained",
            what="all pods drain under a high load, and each claim takes a while",
            # Mixed, so that each pod has long jobs and also room for the short ones.
            jobs=16 * (_ops(sleep=5500, retry=50), *(15 * (_ops(pure=0),))),
            faults=_faults(
                (1.5, "drain", _drain(place=0)),
                (1.8, "drain", _drain(place=1)),
                (2.1, "drain", _drain(place=2)),
                (2.4, "drain", _drain(place=3)),
            ),
            pods=4,
            load_s=2.5,
            delay_s=0.04,
            model={Op.RETRY: {"times": 2, "status": 529}},
        ),
        Scene(
            name="cut-off",
            what="a pod is cut off for a while, then all pods lose the server",
            jobs=12 * (30 * _ops(sleep=250),),
            faults=_faults(
                (0.1, "lose-reply", {"whom": "clients", "writes": False, "count": 3, "for_s": 2.0}),
                (1.0, "blackhole", _cut(place=0, for_s=3.7)),
                (6.0, "restart", {"how": "immediate", "down_s": 5.5}),
            ),
            scale=evolve(SCALED, zombie_s=4.5),
        ),
        Scene(
            name="trickle",
            what="a few jobs one after another, whose model asks for a later retry",
            jobs=(
                *(3 * (_ops(sleep=100),)),
                *(2 * (_ops(pure=0, sleep=50, model=50),)),  # see calm
                # Longer than clocks may seem to differ: a call after the closing proves nothing.
                *(3 * (_ops(retry=1500, pure=0),)),
            ),
            cancelled=2,
            pods=2,
            load_s=2.5,
            model={
                Op.MODEL: {"times": 1, "status": 529, "message": "{canary} has to wait"},
                Op.RETRY: {"times": 1, "status": 429, "retry_after": 1},
            },
            quiet_within_s=18.0,
        ),
        Scene(
            name="silence",
            what="clients are cut off for longer than any call may last, while pods continue",
            jobs=(12 * _ops(sleep=2000), *(8 * (_ops(sleep=200),))),
            faults=_faults((2.0, "blackhole", {**_cut(place=0, for_s=17.0), "whom": "clients"})),
            pods=2,
            load_s=4.0,
        ),
        Scene(
            name="power-cut",
            what="the server loses its power during submissions",
            jobs=80 * (_ops(pure=0),),
            faults=_faults((2.5, "restart", {"how": "immediate", "down_s": 0.5})),
            pods=2,
            load_s=4.0,
        ),
        Scene(
            name="bereft",
            what="a pod dies while nothing else is broken",
            jobs=2 * (_ops(sleep=200),),
            pods=2,
            is_quiet=True,
        ),
        Scene(
            name="seldom-heard",
            what="pods poll each other's locks far more often than they beat, as in production",
            jobs=4 * (_ops(sleep=3000),),
            pods=2,
            scale=evolve(SCALED, heartbeat_s=2.0, zombie_s=9.0),
            quiet_within_s=15.0,
        ),
        Scene(
            name="relapse",
            what="a model asks for a later retry, and breaks its next answer off",
            jobs=(_ops(retry=4000),),
            pods=2,
            model={
                Op.RETRY: (
                    {"times": 1, "status": 429, "retry_after": 1},
                    {"times": 1, "fault": "error_event", "fault_after": 3},
                ),
            },
            quiet_within_s=50.0,  # its breaker stays open for half a minute
        ),
        Scene(
            name="mail",
            what="jobs publish; pods die before and after they send, one outlives its leases",
            jobs=40 * (6 * _ops(publish=0) + _ops(sleep=100),),
            faults=_faults(
                (0.3, "point", _at_point("after_outbox_claim", place=0)),
                (0.3, "point", _at_point("after_step", place=1, nth=3)),
                (0.5, "point", {**_at_point("after_message_sent", place=2, nth=2), **_STOPPED}),
                (5.0, "point", _at_point("after_message_sent", place=3, nth=2)),
            ),
            pods=5,
            load_s=10.0,
            quiet_within_s=40.0,
        ),
        Scene(
            name="away",
            what="the receiver of a webhook is away for longer than three attempts within seconds",
            jobs=(_ops(publish=0),),
            away_s=17.0,
            pods=1,
            quiet_within_s=60.0,
        ),
        Scene(
            name="on-time",
            what="schedules have instants to make up for, and pods die as they fire them",
            jobs=4 * (_ops(sleep=200),),
            faults=_faults(
                # One schedule is fired, the next transaction of the tick has not begun.
                *(
                    (0.2, "point", _at_point(f"{BETWEEN}.schedule_ticks.fire_due.3", place=place))
                    for place in range(3)
                ),
                (4.0, "point", _at_point("after_fire", place=0)),
                (4.0, "point", _at_point("before_fire", place=1, nth=2)),
            ),
            load_s=8.0,
            has_schedules=True,
        ),
        Scene(
            name="between-calls",
            what="schedules have instants to make up for, and pods die between two calls of a tick",
            jobs=4 * (_ops(sleep=200),),
            faults=_faults(
                *(
                    (0.2, "point", _at_point(f"{BETWEEN}.schedules", place=place))
                    for place in range(3)
                ),
            ),
            load_s=20.0,
            has_schedules=True,
        ),
        Scene(
            name="caught-up",
            what="a schedule has instants to make up for, and the last one is hardly late",
            jobs=2 * (_ops(sleep=200),),
            load_s=2.0,
            burst="skip",
        ),
        Scene(
            name="asked",
            what="people are slow to decide, and are reminded; pods die before and after that",
            jobs=20 * (_ops(approval=0, notify=0),),
            faults=_faults(
                (0.5, "point", _at_point("before_reminder", place=0)),
                (1.5, "point", _at_point("after_reminder", place=1)),
                # Each death wakes the runner of the others: see hints.POD_LOST.
                (3.0, "point", _at_point("before_reminder", place=0, nth=2)),
                (4.0, "point", _at_point("after_reminder", place=1, nth=2)),
                (5.0, "point", _at_point("after_beat", place=0)),
                (6.0, "point", _at_point("after_beat", place=1)),
                (7.0, "point", _at_point("after_beat", place=0)),
            ),
            load_s=7.0,
            quiet_within_s=40.0,  # as long as a breaker of a channel stays open
        ),
        Scene(
            name="forgotten",
            what="old jobs are archived and deleted, and pods die before and after that",
            jobs=4 * (_ops(sleep=200),),
            faults=_faults(
                (0.2, "point", _at_point("after_archive", place=0)),
                (1.5, "point", _at_point("before_retention", place=1)),
                (3.0, "point", _at_point("after_beat", place=2)),
            ),
            load_s=5.0,
            old_job_count=40,
        ),
        Scene(
            name="logged",
            what="jobs log, one floods; replies are lost, a pod dies as it stores lines",
            jobs=(_ops(flood=0), *(24 * (2 * _ops(log=1200),))),
            faults=_faults(
                (1.5, "lose-reply", {**_cut(place=0, for_s=2.0), "writes": True, "count": 40}),
                (1.5, "lose-reply", {**_cut(place=1, for_s=2.0), "writes": True, "count": 40}),
                (2.5, "point", _at_point("before_lines", place=2, nth=2)),
                (4.0, "restart", {"how": "immediate", "down_s": 0.5}),
            ),
            load_s=4.0,
            quiet_within_s=60.0,
        ),
        Scene(
            name="logged-off",
            what="jobs log until their pods drain",
            jobs=60 * (_ops(log=300),),
            faults=_faults(
                *((1.0 + 0.5 * place, "drain", _drain(place=place)) for place in range(4))
            ),
            pods=4,
            load_s=4.0,
        ),
        Scene(
            name="agents",
            what="agents whose model's answers are cut and odd; nothing goes wrong outside",
            jobs=6 * (_ops(agent=40),),
            pods=2,
        ),
        Scene(
            name="deployed",
            what="another release is rolled out and taken back while jobs of both are in flight",
            jobs=(),
            deploys=120,
            pods=4,
            load_s=20.0,
            scale=evolve(SCALED, code_wait_s=CODE_WAIT_S),
        ),
        Scene(
            name="busy",
            what="only steps and heartbeats",
            jobs=36 * (40 * _ops(pure=0),),
            scale=evolve(SCALED, heartbeat_s=0.05),
        ),
    )
}
