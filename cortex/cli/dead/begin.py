"""Beginning an act on all letters that fit a filter: pods work it off, whoever began it leaves."""

from typing import Any

from cortex.cli.dead.bulk_columns import ACT_COLUMNS
from cortex.cli.dead.choice import ChosenDeadLetters, DeadLetterRequest
from cortex.cli.idempotent import mutate
from cortex.cli.screen.output import Output
from cortex.domain.bulk_operation import BulkVerb, hold_up
from cortex.domain.clock import system_chance
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import bulk_operations
from cortex.store.bulk_operations import BulkOperation


def begin(
    call: Session,
    chosen: ChosenDeadLetters,
    asked: DeadLetterRequest,
    output: Output,
    verb: BulkVerb,
    *,
    agent_version: int | None = None,
    from_start: bool = False,
) -> None:
    """Begin an act on the letters that were chosen, and show it; none: say why not."""
    act = BulkOperation(
        token=system_chance().new_id(),
        verb=verb,
        job_ids=chosen.ids,
        which=asked.which.typed(limit=asked.limit),
        rate_per_s=asked.rate,
        by=asked.by,
        reason=asked.reason or "",
        agent_version=agent_version,
        from_start=from_start,
    )

    async def work(db: Database) -> dict[str, Any]:
        return {"act": await bulk_operations.begin(db, act) if act.job_ids else None}

    how = {"rate": asked.rate, "agent_version": agent_version, "from_start": from_start}
    begun = mutate(
        call,
        work,
        output=output,
        key=asked.key,
        operation=f"dead.acts.{verb.value.lower()}",
        request=asked.request | how,
    )
    if begun["act"] is None:
        output.listing("acts", ACT_COLUMNS, [], empty=f"{chosen.empty}{chosen.left_out}")
        return
    row = call(bulk_operations.show, begun["act"])
    output.listing("acts", ACT_COLUMNS, [row], empty="")
    if waits := hold_up(row, row["now"]):
        output.say(f"act {row['id']} {waits}", "warn")
    output.say(f"it goes on by itself; follow it: cortex dead acts watch {row['id']}", "dim")
