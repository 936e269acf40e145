"""The check that a job's code replays its own record: the one that `cortex preflight` makes."""

from typing import NoReturn

import trio
from trio.testing import MockClock

from cortex.domain.classification import describe
from cortex.domain.errors import CortexError
from cortex.domain.job import Claim, Lease
from cortex.durable.attempt import Services
from cortex.durable.dry_run import DryJournal, Finding, Problem, dry_run
from cortex.durable.registry import Registry
from cortex.testing.agents import AGENT_ID, VERSION
from cortex.testing.clock import Clock, RunClock
from cortex.testing.job_run import JobRun
from cortex.testing.outcome import PromiseBrokenError, StuckError
from cortex.testing.services import services_of


def replay(run: JobRun) -> None:
    """Run the handler of a job that has ended again, from its record.

    Raises `PromiseBrokenError` if the code asks for other steps than those on record, or gives them
    other inputs. Nothing is called: no step, effect or model.
    """
    __tracebackhide__ = True
    mock = MockClock()
    journals: list[DryJournal] = []
    finding = trio.run(_replayed, run, mock, journals, clock=mock)
    broken = _broken(run, finding, journals[0] if journals else None)
    if broken is not None:
        raise PromiseBrokenError(f"job {run.job_type.name!r} does not replay{broken}")


def _broken(run: JobRun, finding: Finding | None, journal: DryJournal | None) -> str | None:
    if finding is not None:
        if finding.problem is Problem.RAISES and finding.message == _message(run.error):
            return None  # it did so the first time
        where = "" if finding.where is None else f" at {finding.where!r}"
        return f"{where}: {finding.message}"
    if journal is None:
        return None
    if (due := journal.first_due) is not None:
        return f" at {due!r}: it is on record, and the code does not ask for it any more"
    if run.error is None and (new := journal.first_new) is not None:
        return f" at {new!r}: the code asks for it, and it is not on record"
    return None


def _message(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return error.message if isinstance(error, CortexError) else describe(error)


async def _replayed(run: JobRun, mock: MockClock, journals: list[DryJournal]) -> Finding | None:
    registry = Registry(run.types)
    registry.resources.declared.update(run.resources)
    lease = Lease(run.job_id, run.attempts + 1)
    attempt = run.record.attempt(lease)
    policy = run.job_type.policy
    claim = Claim(
        lease=lease,
        type=run.job_type.name,
        payload=run.payload,
        agent_id=None if run.agent is None else AGENT_ID,
        agent_version=None if run.agent is None else VERSION,
        attempts_spent=1,
        max_attempts=policy.worker_attempts,
        is_queued=False,
        has_steps=True,
        cancel_requested=False,
        left_s=policy.timeout_s,
        timeout_s=policy.timeout_s,
    )

    def journal() -> DryJournal:
        recorded = run.record.recorded()
        made = DryJournal(
            claim,
            recorded,
            arguments={
                each.intent.key: each.intent.arguments for each in run.record.ledger.effects
            },
            misfit=run.tools.misfit,
            has_stored_calls=False,
        )
        journals.append(made)
        return made

    def services(journal: DryJournal) -> Services:
        return services_of(
            attempt,
            journal,
            policy=policy,
            agent=run.agent,
            tools=run.tools,
            scripted=run.scripted,
            budgets=run.budgets,
            clock=RunClock(Clock(run.clock.now), mock),
            resources=registry.resources,
            workspaces=run.workspaces,
            rng=run.rng,
            log=None,
            stuck=lambda _: None,
        )

    def give_up() -> NoReturn:
        raise StuckError(f"job {run.job_type.name!r} ignores its cancellation in a replay")

    return await dry_run(
        registry, claim, journal, services, clock=mock, is_builtin=False, give_up=give_up
    )
