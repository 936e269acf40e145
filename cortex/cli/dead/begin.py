"""Starts a bulk operation on all dead letters that match a filter; pods work it off."""

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
    request: DeadLetterRequest,
    output: Output,
    verb: BulkVerb,
    *,
    agent_version: int | None = None,
    from_start: bool = False,
) -> None:
    """Start a bulk operation on the chosen dead letters, and show it; without any, say why."""
    act = BulkOperation(
        token=system_chance().new_id(),
        verb=verb,
        job_ids=chosen.ids,
        which=request.which.typed(limit=request.limit),
        rate_per_s=request.rate,
        by=request.by,
        reason=request.reason or "",
        agent_version=agent_version,
        from_start=from_start,
    )

    async def work(db: Database) -> dict[str, Any]:
        return {"act": await bulk_operations.begin(db, act) if act.job_ids else None}

    how = {"rate": request.rate, "agent_version": agent_version, "from_start": from_start}
    begun = mutate(
        call,
        work,
        output=output,
        key=request.key,
        operation=f"dead.acts.{verb.value.lower()}",
        request=request.request | how,
    )
    if begun["act"] is None:
        output.listing("acts", ACT_COLUMNS, [], empty=f"{chosen.empty}{chosen.left_out}")
        return
    row = call(bulk_operations.show, begun["act"])
    output.listing("acts", ACT_COLUMNS, [row], empty="")
    if waits := hold_up(row, row["now"]):
        output.say(f"act {row['id']} {waits}", "warn")
    output.say(f"it continues by itself; to follow it: cortex dead acts watch {row['id']}", "dim")
