"""Replays the record of a job against this code, and runs nothing that is not on record.

The handler runs from its top, as in any attempt, and gets what is on record. A branch that asks for
anything else waits there for good. Only a step with the input of one on record that is due gets the
output of that one: so a step that was renamed is found. Once all branches wait, or nothing on
record is left, the replay is over, and the handler is stopped. Its own pauses pass at once: the
clock is one of this process.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.domain.callbacks import Callback, Signer
from cortex.domain.canonical import parse
from cortex.domain.classification import describe, leaves
from cortex.domain.control_flow import LeaseLost, Suspended, Unfit
from cortex.domain.errors import (
    ApprovalExpiredError,
    CortexError,
    DeniedError,
    DivergedError,
    InvalidValueError,
    UsageError,
)
from cortex.domain.job import Claim, Publish, Step, StepDone, StepKind
from cortex.durable.attempt import Services
from cortex.durable.codec import StepInput, decode, encode
from cortex.durable.divergence import difference, is_renamed
from cortex.durable.handling import run_handler
from cortex.durable.journal import Journal, Recorded, running_in
from cortex.durable.registry import Registry
from cortex.durable.replay import PATIENCE_S
from cortex.durable.results import ResultType
from cortex.durable.step_outcome import StepLimit, StepOutcome

PAUSE_S: Final = 1.0
"""The clock's steps while a branch waits for something of its own."""
STOPS_MAX: Final = 20
"""How often the clock goes on for a handler that does not stop."""
THREAD_CHECK_S: Final = 0.000_5


class Problem(StrEnum):
    """Why a job would not go on."""

    TYPE = "type"
    """This code has no handler of its type: it would wait for code."""
    ARGUMENTS = "arguments"
    """The handler does not take its payload: it would wait for code."""
    TOOL = "tool"
    """This code lacks a tool that it needs: it would wait for code."""
    STEP = "step"
    """A step on record is of a kind that this release lacks: it would wait for code."""
    DIVERGES = "diverges"
    """The handler asks for other steps than those on record."""
    RAISES = "raises"
    """The handler raises an error before it asks for anything new."""
    OUTSIDE = "outside"
    """The handler opens connections, programs or files outside of its steps, or tries to."""
    STUCK = "stuck"
    """The handler blocks or computes between its steps, or cannot be stopped."""
    UNSURE = "unsure"
    """No problem so far: a step that is not on record comes before some that are."""


@attrs.frozen(kw_only=True)
class Finding:
    """What is wrong with a job under this code."""

    problem: Problem
    where: str | None
    """The key of the step; None: not at a step."""
    message: str


@attrs.frozen
class _Parked:
    kind: StepKind | None
    """None: a service of the pod, outside of all steps."""
    is_new_call: bool
    """A call that may only begin when nothing on record is due."""


class DryJournal(Journal):
    """The record of a job, to which nothing can be added."""

    __slots__ = (
        "_arguments",
        "_asked",
        "_begun",
        "_has_stored_calls",
        "_misfit",
        "_over",
        "_parked",
        "_stand_ins",
        "diverged_at",
        "missing",
    )

    def __init__(
        self,
        claim: Claim,
        recorded: Recorded,
        *,
        arguments: Mapping[str, str],
        misfit: Callable[[str, Mapping[str, Any] | None], str | None],
        has_stored_calls: bool,
    ) -> None:
        """`arguments`: of the recorded effects.

        `misfit`: returns why this code cannot make a call of a tool, with its arguments if they are
        older than the code. `has_stored_calls`: those of this job are.
        """
        super().__init__(claim.lease, _Nothing(), recorded)
        self._arguments = arguments
        self._begun = {effect.key for effect in recorded.effects}
        self._asked = frozenset(recorded.past.questions)
        self._over = trio.Event()
        self._parked: dict[str, _Parked] = {}
        self._stand_ins: dict[str, str] = {}
        self.diverged_at: str | None = None
        """The key of the step at which the replay diverged."""
        self.missing: Finding | None = None
        """A tool that this code lacks, or that takes other arguments."""
        self._misfit = misfit
        self._has_stored_calls = has_stored_calls

    async def once(
        self,
        kind: StepKind,
        key: str,
        *,
        given: StepInput,
        run: Callable[[], Awaitable[Any]],
        limit_s: StepLimit | None = None,
        result: ResultType | None = None,
    ) -> Any:
        """Return the step's recorded output; for any other wait until the replay is over."""
        memo = self._memo.get(key)
        if memo is not None:
            try:
                return await super().once(
                    kind, key, given=given, run=run, limit_s=limit_s, result=result
                )
            except DivergedError:
                self.diverged_at = key
                raise
        self._promised.pop(key, None)
        self._replay.mark_requested(key)
        if kind is StepKind.EFFECT and key in self._arguments:
            self._check_open(key, given)
        if kind is StepKind.TOOL:
            self._check_tool(key, parse(given.kept))
        if kind is StepKind.STEP and (old := self._alike(given)) is not None:
            self._stand_ins[key] = old.key
            recorded = decode(old.output)
            return recorded if result is None else self.converted(key, recorded, result)
        is_new_call = kind in (StepKind.MODEL, StepKind.MESSAGE, StepKind.CHILD) or (
            key not in self._begun | self._asked and kind in (StepKind.EFFECT, StepKind.APPROVAL)
        )
        return await self.park(key, kind, is_new_call=is_new_call)

    def noted(self, key: str, value: Callable[[], str]) -> str:
        """Return the recorded value, or one that stands for it: no step on record has used it."""
        if key not in self._memo:
            self._replay.mark_requested(key)
            return str(UUID(int=0))
        try:
            return super().noted(key, value)
        except DivergedError:
            self.diverged_at = key
            raise

    def _check_tool(self, key: str, given: Mapping[str, Any]) -> None:
        """Note a call that other code could make: of a tool that is missing or takes less."""
        is_older = self._has_stored_calls or key in self._begun or f"{key} approval" in self._asked
        # Long arguments are cut.
        is_whole = is_older and isinstance(given["arguments"], Mapping)
        message = self._misfit(given["tool"], given["arguments"] if is_whole else None)
        if message is not None:
            self.missing = Finding(problem=Problem.TOOL, where=key, message=message)

    def _alike(self, given: StepInput) -> Step | None:
        """Return a step on record with this input that is due: it may have another name here."""
        taken = set(self._stand_ins.values())
        due = (self._memo[key] for key in self._replay.due() if key not in taken)
        return next(
            (each for each in due if each.kind is StepKind.STEP and each.digest == given.digest),
            None,
        )

    @property
    def renamed(self) -> Finding | None:
        """The first step that stands under another name on record, which was never requested."""
        due = set(self._replay.due())
        for new, old in self._stand_ins.items():
            if old in due:
                message = (
                    f"not on record: {new!r}, but {old!r} with the same input: was it renamed?"
                )
                return Finding(problem=Problem.DIVERGES, where=new, message=message)
        return None

    @property
    def has_guessed(self) -> bool:
        """A step that is not on record got the output of another one."""
        return bool(self._stand_ins)

    async def group(
        self, key: str, *, given: StepInput, run: Callable[[], Awaitable[StepOutcome]]
    ) -> Any:
        """Run the function of a group, which only requests steps."""
        if key in self._memo:
            return await super().group(key, given=given, run=run)
        self._promised.pop(key, None)
        self._replay.mark_requested(key)
        with running_in(key):
            outcome = await run()
        return decode(encode(outcome.value, what=f"output of group {key!r}"))

    async def park(
        self, key: str, kind: StepKind | None = None, *, is_new_call: bool = False
    ) -> NoReturn:
        """Wait until the replay is over, then raise what job code must not swallow."""
        self._parked[key] = _Parked(kind, is_new_call)
        self._replay.hold()
        await self._over.wait()
        raise LeaseLost("the replay is over")

    def _check_open(self, key: str, given: StepInput) -> None:
        recorded = self._arguments[key]
        changed = difference(recorded, given.kept)
        if (
            changed
            and parse(recorded) != parse(given.kept)
            and not is_renamed(recorded, given.kept)
        ):
            self.diverged_at = key
            raise DivergedError(f"effect {key!r} was begun as another call: {changed}")

    @property
    def is_at_end(self) -> bool:
        """The handler will request nothing more that is on record, as far as is known."""
        return bool(self._parked) and (not self._due or self._replay.stands)

    @property
    def _due(self) -> list[str]:
        return self._replay.due(below=self._parked)

    def end(self) -> Finding | None:
        """Stop the branches that wait; return what is wrong, None: the code fits."""
        self._over.set()
        due = self._due
        if self.missing is not None or not due:
            return self.missing
        if (renamed := self.renamed) is not None:
            return renamed
        calls = [key for key, parked in self._parked.items() if parked.is_new_call]
        if calls and len(calls) == len(self._parked):
            error = self._replay.must_not_begin(calls[0])
            return Finding(problem=Problem.DIVERGES, where=due[0], message=error.message)
        step = next((key for key in self._parked if key not in calls), None)
        message = f"not on record: {step!r}; later steps cannot be checked, such as {due[0]!r}"
        if step is None:
            message = f"waits outside of its steps, before {due[0]!r}"
        return Finding(problem=Problem.UNSURE, where=step or due[0], message=message)

    @property
    def first_new(self) -> str | None:
        """The key of the first step that was requested and is not on record."""
        return next((key for key, each in self._parked.items() if each.kind is not None), None)

    @property
    def first_due(self) -> str | None:
        """The key of the first step on record that is due and was not requested."""
        return next(iter(self._replay.due()), None)


class _Nothing:
    """Takes no operation."""

    async def record(self, operation: StepDone) -> None:
        raise LeaseLost(f"a replay records nothing: {operation.key!r}")

    async def send_ahead(self, operation: StepDone) -> None:
        """Send nothing: the next attempt of the job decides about patches itself."""


class PublishesNothing:
    """A publisher for replays, which have nothing to show."""

    async def publish(self, change: Publish) -> None: ...


class Absent:
    """A service or resource that a replay lacks: code that calls it outside of steps waits."""

    def __init__(self, name: str, journal: DryJournal) -> None:
        self._name = name
        self._journal = journal

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def wait(*_args: Any, **_kwargs: Any) -> Any:
            await self._journal.park(f"{self._name}.{method}")

        return wait


class DryCallbacks:
    """Callback URLs that are on record; one whose secret is not here is waited for."""

    def __init__(self, signer: Signer, journal: DryJournal) -> None:
        self._signer = signer
        self._absent = Absent("callbacks", journal)

    async def open(self, *_: Any, **__: Any) -> NoReturn:
        """Never asked for: the journal waits at a step that is not on record."""
        await self._absent.open()
        raise AssertionError

    async def url(self, claim: Claim, callback: Callback) -> str:
        url = None
        with suppress(UsageError):
            url = self._signer.url(claim.lineage_id or claim.lease.job_id, callback)
        if url is None:
            await self._absent.url()
            raise AssertionError
        return url


class Dry:
    """One replay."""

    def __init__(self, registry: Registry, claim: Claim, *, is_builtin: bool) -> None:
        """`is_builtin`: its type is Cortex's own, whose checks may need another pod."""
        self._registry = registry
        self._claim = claim
        self._is_builtin = is_builtin
        self.journal: DryJournal | None = None
        self.finding: Finding | None = None
        self.has_ended = False

    async def handle(
        self,
        make_journal: Callable[[], DryJournal],
        make_services: Callable[[DryJournal], Services],
    ) -> None:
        """Run the handler until it ends or is cancelled."""
        self.journal = journal = make_journal()
        resources = self._registry.resources
        resources.opened = {
            kind: Absent(each.name, journal) for kind, each in resources.declared.items()
        }
        try:
            await run_handler(self._registry, self._claim, journal, make_services(journal))
            self.finding = journal.renamed
        except Unfit as wish:
            self.finding = Finding(problem=Problem.TOOL, where=None, message=wish.reason)
        except (LeaseLost, Suspended):
            pass  # it was stopped, or would wait
        except (ApprovalExpiredError, DeniedError):
            pass  # people end it, whichever code runs
        except Exception as error:  # noqa: BLE001 -- all that a handler may raise
            self.finding = self._of_error(journal, error)
        except BaseExceptionGroup as group:
            if not all(isinstance(leaf, LeaseLost | Suspended) for leaf in leaves(group)):
                raise
        finally:
            self.has_ended = True

    def _of_error(self, journal: DryJournal, error: Exception) -> Finding | None:
        message = error.message if isinstance(error, CortexError) else describe(error)
        if (renamed := journal.renamed) is not None:
            return renamed
        if journal.has_guessed:
            return Finding(problem=Problem.UNSURE, where=None, message=message)
        if isinstance(error, DivergedError):
            where = journal.diverged_at or journal.first_due
            return Finding(problem=Problem.DIVERGES, where=where, message=message)
        problem = Problem.UNSURE if self._is_builtin else Problem.RAISES
        return Finding(problem=problem, where=None, message=message)


async def dry_run(
    registry: Registry,
    claim: Claim,
    make_journal: Callable[[], DryJournal],
    make_services: Callable[[DryJournal], Services],
    *,
    clock: MockClock,
    is_builtin: bool,
    give_up: Callable[[], NoReturn],
) -> Finding | None:
    """Replay one job; return what is wrong, None: the code fits.

    `clock` is that of this trio program, which stands still otherwise. `give_up` ends this process:
    for a handler that swallows its cancellation.
    """
    if (unfit := _unfit(registry, claim)) is not None:
        return unfit
    run = Dry(registry, claim, is_builtin=is_builtin)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.handle, make_journal, make_services)
        found = await _until_end(run, clock)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            for _ in range(STOPS_MAX):
                await wait_all_tasks_blocked()
                if run.has_ended:
                    break
                clock.jump(PATIENCE_S)
            else:
                give_up()
    return run.finding or found


async def _until_end(run: Dry, clock: MockClock) -> Finding | None:
    """Let the handler run until it gets no further; return what is wrong there."""
    waited_s = 0.0
    limiter = trio.to_thread.current_default_thread_limiter()
    while not run.has_ended:
        await wait_all_tasks_blocked()
        journal = run.journal
        if limiter.borrowed_tokens:  # they look like tasks that are blocked
            await wait_all_tasks_blocked(THREAD_CHECK_S)
        elif journal is not None and (journal.is_at_end or waited_s >= PATIENCE_S):
            return journal.end()
        else:
            waited_s += PAUSE_S
            clock.jump(PAUSE_S)
    return None


def _unfit(registry: Registry, claim: Claim) -> Finding | None:
    if claim.type not in registry.names:
        return Finding(
            problem=Problem.TYPE, where=None, message=f"there is no job type {claim.type!r}"
        )
    try:
        registry.get(claim.type).arguments(claim.payload)
    except InvalidValueError as error:
        return Finding(problem=Problem.ARGUMENTS, where=None, message=error.message)
    return None
