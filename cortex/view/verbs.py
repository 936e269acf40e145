"""What people can do to resources: one line per verb, read by every surface.

The command line takes the options of a change from it, the HTTP API the right that a caller needs
and whether its body must hold a reason, and the terminal UI what it asks before it acts.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from cortex.domain.token import Role

STORED: Final = "Stored with the change."
SHOWN: Final = "Shown to everyone who waits, and stored."
ALWAYS: Final = "Do not ask."


@attrs.frozen(kw_only=True)
class Verb:
    """How one change is asked for."""

    command: str
    """Its words on the command line: `queues pause`."""
    role: Role = Role.OPERATOR
    """The right that a caller of the HTTP API needs."""
    reason: str = STORED
    """What becomes of the reason that a person gives."""
    is_reason_required: bool = False
    asks: str | None = None
    """Help of `--yes`: when a person has to confirm; None: never."""
    has_key: bool = True
    """Whether a repeated request can return the result of the first one."""
    has_dry_run: bool = False


SUBMIT_JOB: Final = Verb(command="jobs submit", role=Role.SUBMITTER, reason="Stored with the job.")
CANCEL_JOB: Final = Verb(
    command="jobs cancel", reason="Stored in the job's history.", asks=ALWAYS, has_dry_run=True
)
PRIORITIZE_JOB: Final = Verb(command="jobs priority", reason="Stored with the job's changes.")
RETRY_JOB: Final = Verb(
    command="jobs retry",
    asks="Do not ask; filters and failed jobs need confirmation.",
    has_dry_run=True,
)
SIGNAL_JOB: Final = Verb(command="jobs signal", reason="Stored with the job's changes.")
RESUME_JOB: Final = Verb(command="jobs resume", reason="Stored with the choice.")
APPROVE: Final = Verb(
    command="approvals approve", role=Role.APPROVER, reason="Stored with the decision.", asks=ALWAYS
)
DENY: Final = Verb(
    command="approvals deny",
    role=Role.APPROVER,
    reason="Sent to the agent, and stored.",
    is_reason_required=True,
)
LINK_APPROVAL: Final = Verb(command="approvals link", role=Role.APPROVER, has_key=False)
RESOLVE_EFFECT: Final = Verb(
    command="effects resolve",
    reason="How you know; stored with the effect.",
    is_reason_required=True,
    asks=ALWAYS,
)
FREEZE: Final = Verb(command="freeze on", reason=SHOWN, is_reason_required=True)
UNFREEZE: Final = Verb(command="freeze off", is_reason_required=True, asks=ALWAYS)
PAUSE: Final = Verb(command="pause", reason=SHOWN, is_reason_required=True)
RESUME: Final = Verb(command="resume")
ORDER_QUEUE: Final = Verb(command="queues order", is_reason_required=True)
OPEN_BREAKER: Final = Verb(
    command="breakers open", reason=SHOWN, is_reason_required=True, asks=ALWAYS
)
CLOSE_BREAKER: Final = attrs.evolve(OPEN_BREAKER, command="breakers close")
DRAIN_POD: Final = Verb(command="pods drain", reason="Shown with the pod, and stored.")
UNDRAIN_POD: Final = Verb(command="pods undrain")
RETRY_MESSAGE: Final = Verb(
    command="outbox retry",
    is_reason_required=True,
    asks="Do not ask; filters need confirmation.",
)
DISCARD_MESSAGE: Final = Verb(command="outbox discard", is_reason_required=True, asks=ALWAYS)
APPLY_SCHEDULES: Final = Verb(
    command="schedules apply", reason="Stored with each new and changed schedule."
)
PAUSE_SCHEDULE: Final = Verb(
    command="schedules pause", reason="Shown to everyone, and stored.", is_reason_required=True
)
RESUME_SCHEDULE: Final = Verb(command="schedules resume")
TRIGGER_SCHEDULE: Final = attrs.evolve(PAUSE_SCHEDULE, command="schedules trigger")
REMOVE_SCHEDULE: Final = Verb(command="schedules rm", is_reason_required=True, asks=ALWAYS)
APPLY_AGENTS: Final = Verb(
    command="agents apply",
    reason="Stored with each new version and changed budget.",
)
APPLY_FLOWS: Final = Verb(command="flows apply", reason="Stored with each new version.")
APPLY_SUBSCRIPTIONS: Final = Verb(
    command="subscriptions apply",
    reason="Stored with each new and changed subscription.",
)
REMOVE_SUBSCRIPTION: Final = attrs.evolve(REMOVE_SCHEDULE, command="subscriptions rm")
SET_BUDGET: Final = Verb(command="budgets set", is_reason_required=True)
RAISE_BUDGET: Final = attrs.evolve(SET_BUDGET, command="budgets raise")
REMOVE_BUDGET: Final = attrs.evolve(REMOVE_SCHEDULE, command="budgets rm")
SET_QUOTA: Final = attrs.evolve(SET_BUDGET, command="quotas set")
REMOVE_QUOTA: Final = attrs.evolve(REMOVE_SCHEDULE, command="quotas rm")
SET_CAP: Final = attrs.evolve(SET_BUDGET, command="quotas cap")
REMOVE_CAP: Final = attrs.evolve(REMOVE_SCHEDULE, command="quotas uncap")
CREATE_TOKEN: Final = Verb(command="tokens create", role=Role.ADMIN)
REVOKE_TOKEN: Final = Verb(command="tokens revoke", role=Role.ADMIN, asks=ALWAYS)
ADD_PERSON: Final = Verb(command="people add", role=Role.ADMIN)
DISABLE_PERSON: Final = Verb(command="people disable", role=Role.ADMIN, asks=ALWAYS)
ENABLE_PERSON: Final = Verb(command="people enable", role=Role.ADMIN, asks=ALWAYS)
TRUST_TOOLS: Final = Verb(
    command="agents trust", is_reason_required=True, asks=ALWAYS, has_key=False
)
SET_RETENTION: Final = Verb(command="retention set", is_reason_required=True, asks=ALWAYS)
UNSET_RETENTION: Final = Verb(command="retention unset", is_reason_required=True)
RETRY_LETTERS: Final = Verb(
    command="dead retry",
    reason="Reason; stored with each dead letter.",
    is_reason_required=True,
    asks=ALWAYS,
    has_dry_run=True,
)
DISCARD_LETTERS: Final = attrs.evolve(RETRY_LETTERS, command="dead discard")

VERBS: Final[Mapping[str, Verb]] = {
    each.command: each for each in tuple(globals().values()) if isinstance(each, Verb)
}
"""By their commands."""
