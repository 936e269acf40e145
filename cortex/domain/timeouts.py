"""Time limits: the default of each scope, and its hard limit.

Scopes nest: job, step, call. An inner limit is capped by what is left of the outer one. A job's own
limit is part of the policy of its type (`policy.POLICIES`, `policy.JOB_HARD`), a tool's is part of
the tool.
"""

import math
from datetime import datetime
from enum import StrEnum
from typing import Final

from attrs import frozen

from cortex.domain.errors import UsageError
from cortex.domain.job import Lease
from cortex.domain.redaction import redact


@frozen(kw_only=True)
class Limit:
    """One scope. Times are in seconds."""

    of: str
    """What it limits, as text."""
    default_s: float
    hard_s: float
    """The most that an override may ask for."""

    def refusal(self, value: float) -> str | None:
        """Return what is wrong with an override, continuing after its name; None if it is valid."""
        if math.isfinite(value) and 0 < value <= self.hard_s:
            return None
        limit = f"at most {self.hard_s:g}, the hard limit of {self.of} in seconds"
        return f"must be above 0 and {limit}, got {value:g}"

    def refusal_ms(self, value: int) -> str | None:
        """The same for an override in milliseconds."""
        hard_ms = round(self.hard_s * 1000)
        if 1 <= value <= hard_ms:
            return None
        limit = f"at most {hard_ms}, the hard limit of {self.of} in milliseconds"
        return f"must be at least 1 and {limit}, got {value}"


TIMEOUTS: Final[dict[str, Limit]] = {
    "step": Limit(of="a step", default_s=600, hard_s=900),
    "llm_call": Limit(of="a model call", default_s=300, hard_s=450),
    "llm_idle": Limit(of="the pause in a model's answer", default_s=60, hard_s=450),
    "llm_connect": Limit(of="connecting to a model", default_s=30, hard_s=180),
    "tool_call": Limit(of="a tool call", default_s=120, hard_s=600),
    "flow": Limit(of="a flow", default_s=1800, hard_s=2700),
    "flow_llm_call": Limit(of="a model call in a flow", default_s=120, hard_s=180),
    "http_call": Limit(of="an HTTP request of a job", default_s=120, hard_s=180),
}
"""By scope. A step of an agent is one model response and the tool calls that it requests."""

JOB_EXPIRY_S: Final = 60.0
"""How long after its time-out another pod ends a job whose own pod has not."""


def check_timeout(scope: str, value: float, source: str) -> None:
    """Raise `UsageError` for an override above the hard limit of its scope, or not above 0.

    `source` names the file or the thing, and the field: "step 'fetch': timeout".
    """
    if refusal := TIMEOUTS[scope].refusal(value):
        raise UsageError(f"{source} {refusal}")


def check_step_timeout(seconds: float, *, job_s: float, source: str) -> None:
    """Raise `UsageError` for the limit of one step, which may be as long as that of its job.

    `source` names the step: "step 'fetch': timeout".
    """
    hard_s = max(TIMEOUTS["step"].hard_s, job_s)
    if not (math.isfinite(seconds) and 0 < seconds <= hard_s):
        limit = f"at most {hard_s:g} seconds, the limit of its job" if hard_s == job_s else ""
        limit = limit or f"at most {hard_s:g}, the hard limit of a step in seconds"
        raise UsageError(
            f"{source} must be above 0 and {limit}, got {seconds:g}",
            hint="give the job type as much time: @job(..., timeout=SECONDS)",
        )


PARTIAL_TEXT_MAX_BYTES: Final = 65_536
DIFF_MAX_BYTES: Final = 65_536
LISTED_MAX: Final = 200
"""Files named in a receipt, the newest first."""


class Scope(StrEnum):
    """The scope whose limit fired."""

    JOB = "job"
    STEP = "step"
    CALL = "call"
    CONNECT = "connect"
    IDLE = "idle"


class Phase(StrEnum):
    """The work in progress: a model's answer, a tool, an effect, another step, or between steps."""

    MODEL = "model"
    TOOL = "tool"
    EFFECT = "effect"
    STEP = "step"
    HANDLER = "handler"


class FinalAction(StrEnum):
    """The runtime's reaction."""

    RETRIED_CALL = "retried_call"
    RETRY = "retry"
    RELEASED = "released"
    FAILED = "failed"
    TOLD_MODEL = "told_model"

    @property
    def ended_attempt(self) -> bool:
        """It ended the attempt; otherwise the job went on."""
        return self not in (FinalAction.RETRIED_CALL, FinalAction.TOLD_MODEL)


class Choice(StrEnum):
    """How a failed job is continued."""

    RETRY_STEP = "retry_step"
    DISCARD_AND_RETRY = "discard_and_retry"
    ESCALATE = "escalate"


@frozen(kw_only=True)
class Interruption:
    """The runtime's own knowledge of a time-out. Times are in seconds."""

    lease: Lease
    scope: Scope
    limit_s: float
    elapsed_s: float
    """Since that scope began."""
    phase: Phase
    step_key: str | None
    """The step that was interrupted; None between steps."""
    step_elapsed_s: float
    """Since that step began, or since the last checkpoint."""
    checkpoint_seq: int
    """The last committed step; 0: none."""
    checkpoint_key: str | None
    retry_count: int
    final_action: FinalAction
    nth: int = 1
    """The number of this time-out among the attempt's with this step and scope: calls are
    retried."""
    partial_text: str | None = None
    """The model's output so far."""
    unsettled_s: float | None = None
    """Seconds since the step began or, if that is later, since the last checkpoint: no step
    committed since then, so changes are this step's. Not recorded: the receipt has the instant."""


@frozen(kw_only=True)
class Artefact:
    """A file that the interrupted step wrote."""

    path: str
    """Relative to the workspace."""
    size_bytes: int
    changed_at: datetime
    """When its inode changed, by the pod's clock: programs can set the other times freely."""
    is_new: bool = False
    """It was certainly made since: no committed step can have written it."""


@frozen(kw_only=True)
class FileChange:
    """An uncommitted or untracked file of a work tree."""

    path: str
    """Relative to the root of the work tree."""
    state: str
    """Two letters as `git status` has them: index and work tree, `??` for untracked."""
    size_bytes: int | None
    """None when it is gone."""
    changed_at: datetime | None
    """As with artefacts; for a removed file, the change of its folder. None: unknown."""


@frozen(kw_only=True)
class WorkTree:
    """A git work tree as the time-out left it."""

    root: str
    folder: str
    """The part of it that the job had: everything here is about this folder."""
    branch: str | None = None
    """None when no branch is checked out."""
    head: str | None = None
    """Commit; None before the first."""
    changes: tuple[FileChange, ...] = ()
    """The newest first."""
    change_count: int = 0
    diff: str = ""
    """Tracked files against the head; the middle of a long diff is left out."""
    problem: str | None = None
    """Why the changes are unknown or incomplete."""


@frozen(kw_only=True)
class TimeoutReceipt:
    """A time-out with all its leftovers."""

    interruption: Interruption
    step_started_at: datetime
    """Or its last checkpoint, if later; by the pod's clock, comparable with files' times."""
    artefacts: tuple[Artefact, ...] = ()
    """Files of the workspace that changed since, the newest first, without those of work trees."""
    work_trees: tuple[WorkTree, ...] = ()
    problem: str | None = None
    """Why the leftovers are unknown or incomplete."""

    @property
    def is_clean(self) -> bool:
        """The interrupted step certainly left nothing: it can simply run again."""
        return (
            not self.artefacts
            and self.problem is None
            and all(not tree.change_count and tree.problem is None for tree in self.work_trees)
        )


def recommended_choice(receipt: TimeoutReceipt) -> Choice:
    """Recommend how to continue: set aside files that the interrupted step left half done, if any.

    Uncommitted work in a work tree may be a person's or a committed step's: it stays.
    """
    if any(tree.change_count or tree.problem is not None for tree in receipt.work_trees):
        return Choice.RETRY_STEP
    if receipt.problem is not None or any(each.is_new for each in receipt.artefacts):
        return Choice.DISCARD_AND_RETRY
    return Choice.RETRY_STEP


def clipped(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, at most `max_bytes` of UTF-8, with `…` where it is cut.

    Unstorable characters (NUL, lone surrogates) are replaced; no secret is cut in half.
    """
    encoded = redact(text).replace("\0", "\ufffd").encode(errors="replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    mark = "…"
    return encoded[: max_bytes - len(mark.encode())].decode(errors="ignore") + mark
