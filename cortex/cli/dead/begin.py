"""Has a job do a bulk operation on all dead letters that match a filter."""

from typing import Final

from cortex.cli.bulk import BulkReport, BulkWords, carry_out, show
from cortex.cli.dead.choice import ChosenDeadLetters, DeadLetterRequest
from cortex.cli.screen.output import Output
from cortex.domain.bulk import BulkCounts, BulkRequest, BulkVerb
from cortex.postgres.session import Session

WORDS: Final = {
    BulkVerb.RETRY: BulkWords(
        operation="dead.retry.bulk", would="would be retried", done="retried"
    ),
    BulkVerb.DISCARD: BulkWords(
        operation="dead.discard.bulk", would="would be discarded", done="discarded"
    ),
}


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
    """Submit the job and follow it to its end; without any dead letters, say why.

    Only those that were counted are changed.
    """
    wanted = None
    if chosen.letters:
        wanted = BulkRequest(
            verb=verb,
            reason=request.reason or "",
            letters=request.which,
            letters_through=chosen.last_id,
            limit=len(chosen.letters),
            rate_per_s=request.rate,
            agent_version=agent_version,
            from_start=from_start,
        )
    how = {"rate": request.rate, "agent_version": agent_version, "from_start": from_start}
    words = WORDS[verb]
    report = carry_out(
        call,
        wanted,
        output,
        words,
        by=request.by,
        key=request.key,
        asked=request.request | how,
    )
    if report is not None:
        show(report, output, words)
        return
    none = BulkReport(counts=BulkCounts(), has_more=False)
    output.record(none.document, name="0", page=list)
    if output.is_for_people:
        output.say(chosen.empty, "dim")
