"""Time-outs of a job: the receipts of what each one left behind."""

from typing import Final, get_type_hints
from uuid import UUID

from cortex.domain.timeouts import Choice, Interruption, TimeoutReceipt, recommended_choice
from cortex.store.timeouts import Recorded
from cortex.view.resource import Field, Shape

_RECEIPT: Final = {**get_type_hints(TimeoutReceipt), "is_clean": bool}


def _interruption(name: str, doc: str = "") -> Field[Recorded]:
    kind = get_type_hints(Interruption)[name]
    return Field(
        name=name, doc=doc, kind=kind, value=lambda r: getattr(r.receipt.interruption, name)
    )


def _receipt(name: str, doc: str = "") -> Field[Recorded]:
    return Field(name=name, doc=doc, kind=_RECEIPT[name], value=lambda r: getattr(r.receipt, name))


TIMEOUT: Final = Shape(
    name="Timeout",
    doc="The receipt of a time-out; times are in seconds.",
    row=Recorded,
    fields=(
        Field(name="id"),
        Field(name="at"),
        Field(name="job_id", kind=UUID, value=lambda r: r.receipt.interruption.lease.job_id),
        Field(name="attempt", kind=int, value=lambda r: r.receipt.interruption.lease.attempt),
        _interruption("scope"),
        _interruption("limit_s"),
        _interruption("elapsed_s", "since that scope began"),
        _interruption("phase", "what was going on"),
        _interruption("step_key", "the step that was interrupted; null: between steps"),
        _interruption("step_elapsed_s"),
        _interruption("checkpoint_seq", "the last recorded step; 0: none"),
        _interruption("checkpoint_key"),
        _interruption("retry_count"),
        _interruption("final_action"),
        _interruption("nth", "number among the attempt's with this step and scope"),
        _interruption("partial_text", "the model's answer so far"),
        _receipt("step_started_at"),
        _receipt("artefacts", "files that the step wrote, the newest first"),
        _receipt("work_trees", "git work trees as the time-out left them"),
        _receipt("problem", "why this is incomplete"),
        _receipt("is_clean", "the step left nothing half done"),
        Field(
            name="recommended_choice",
            doc="for resuming the job",
            kind=Choice,
            value=lambda r: recommended_choice(r.receipt),
        ),
    ),
    unlisted=frozenset({"receipt"}),
)
