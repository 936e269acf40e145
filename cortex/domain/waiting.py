"""What a job waits for besides time, if people can act on it, and its description.

Breakers and budgets have their own descriptions, see `cortex.view.why`.
"""

import shlex
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import APPROVAL, ApprovalStatus, Risk
from cortex.domain.argument_brief import call_name
from cortex.domain.effect import FREEZE, QUOTA, UNKNOWN_EFFECT, EffectStatus
from cortex.domain.job_limits import LIMIT
from cortex.domain.known_tool import TRUST
from cortex.domain.phrases import utc_time
from cortex.domain.quota import Period, Quota

SLEEP: Final = "sleep"
"""A timer of job code: nothing but time ends this wait."""
SIGNAL: Final = "signal:"
"""Prefix of a signal's name: something outside ends this wait."""
CHILD: Final = "child:"
"""Prefix of the key of the step whose children end this wait."""
BATCH: Final = "batch"
"""A batch of model calls: its provider ends this wait, within a day."""
CODE: Final = "code"
"""Code that can take the job: those that looked so far cannot."""
PERSON: Final = "person:"
"""Prefix of what only a person can fix: an account without credit."""
ID_DIGITS: Final = 6
"""Digits at the end of an id that suffice to name it."""


@attrs.frozen(kw_only=True)
class ApprovalWait:
    """The request that it waits for."""

    id: UUID
    what: str
    """The tool, or the step of the job's own code."""
    risk: Risk
    people: int
    agreed: int
    status: ApprovalStatus
    requested_by: str | None
    expires_at: datetime

    @property
    def words(self) -> str:
        """Describe who has to do what; once that is decided, what the job waits for now."""
        if self.status is not ApprovalStatus.PENDING:
            return f"{self.status.lower()}; goes on once a pod takes it"
        if self.people == 1:
            who = "a person"
        else:
            who = f"{self.people} people ({self.agreed} agreed so far)"
        asked = f", asked for by {self.requested_by}" if self.requested_by else ""
        return f"waits for {who} to approve {call_name(self.what)} ({self.risk}){asked}"

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Commands that help."""
        return (f"cortex approvals show {self.id}",)


@attrs.frozen(kw_only=True)
class EffectWait:
    """The effect of unknown outcome."""

    id: UUID
    tool: str
    status: EffectStatus
    why: str | None

    @property
    def words(self) -> str:
        """Describe who has to do what."""
        why = f": {self.why}" if self.why else ""
        return f"waits for a person to say whether {self.tool} was applied{why}"

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Commands that help."""
        resolve = f"cortex effects resolve {self.id} applied|not-applied|give-up --reason TEXT"
        return (f"cortex effects show {self.id}", resolve)


@attrs.frozen(kw_only=True)
class FreezeWait:
    """The freeze of all effects."""

    by: str
    reason: str
    frozen_at: datetime

    @property
    def words(self) -> str:
        """Describe what stops it."""
        at = utc_time(self.frozen_at)
        return f"waits until effects may begin: {self.by} froze them at {at}: {self.reason}"

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Commands that help."""
        return ("cortex freeze off --reason TEXT",)


@attrs.frozen(kw_only=True)
class QuotaWait:
    """The quota without room for its call."""

    quota: Quota
    used: Decimal
    resets_at: datetime

    @property
    def is_used_up(self) -> bool:
        """Nothing of it is left."""
        return self.used >= self.quota.limit

    @property
    def words(self) -> str:
        """Describe what stops it."""
        used = f"{self.quota.plain(self.used)} of {self.quota.worded(self.quota.limit)}"
        return f"waits for room in quota {self.quota.name}: {used} used"

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Commands that help."""
        of = "" if self.quota.argument is None else f" --of {shlex.quote(self.quota.argument)}"
        tool, period = shlex.quote(self.quota.tool), self.quota.period
        return (f"cortex quotas set {tool} --limit N{of} --per {period} --reason TEXT",)


Awaited: TypeAlias = ApprovalWait | EffectWait | FreezeWait | QuotaWait


def awaited_of(row: Mapping[str, Any] | None) -> Awaited | None:
    """Read the database's description, see cortex.waits_for; None: another kind of wait."""
    match row:
        case None:
            return None
        case {"kind": "approval"}:
            return ApprovalWait(
                id=UUID(row["id"]),
                what=row["what"],
                risk=Risk(row["risk"]),
                people=row["people"],
                agreed=row["agreed"],
                status=ApprovalStatus(row["status"]),
                requested_by=row["requested_by"],
                expires_at=datetime.fromisoformat(row["expires_at"]),
            )
        case {"kind": "effect"}:
            return EffectWait(
                id=UUID(row["id"]),
                tool=row["tool"],
                status=EffectStatus(row["status"]),
                why=row["why"],
            )
        case {"kind": "freeze"}:
            return FreezeWait(
                by=row["by"],
                reason=row["reason"],
                frozen_at=datetime.fromisoformat(row["frozen_at"]),
            )
        case _:
            quota = Quota(
                tool=row["tool"],
                argument=row["argument"],
                unit=row["unit"],
                period=Period(row["period"]),
                limit=Decimal(row["limit"]),
            )
            return QuotaWait(
                quota=quota,
                used=Decimal(row["used"]),
                resets_at=datetime.fromisoformat(row["resets_at"]),
            )


_NAMED: Final[Mapping[str, str]] = {
    SLEEP: "its timer",
    BATCH: "a batch of model calls",
    CODE: "code that fits it",
    FREEZE: "the end of the freeze of effects",
}


def named(waiting_on: str) -> str:
    """Describe a past wait by its name alone, for histories."""
    for prefix, text in (
        (APPROVAL, "approval"),
        (UNKNOWN_EFFECT, "the outcome of effect"),
    ):
        rest = waiting_on.removeprefix(prefix)
        if rest != waiting_on:
            return f"{text} …{rest[-ID_DIGITS:]}"
    for prefix, text in (
        (SIGNAL, "signal"),
        (CHILD, "children of"),
        (QUOTA, "quota"),
        (LIMIT, "room in limit"),
    ):
        if waiting_on.startswith(prefix):
            return f"{text} {waiting_on.removeprefix(prefix)}"
    if waiting_on in _NAMED:
        return _NAMED[waiting_on]
    if waiting_on.startswith(TRUST):
        agent, _, tool = waiting_on.removeprefix(TRUST).partition("/")
        return f"a person to accept what changed in {tool} (cortex agents trust {agent} {tool})"
    return waiting_on
