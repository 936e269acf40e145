"""What wakes a suspended job before its time: see `Suspended.waits`."""

from typing import Any, TypeAlias
from uuid import UUID

import attrs


@attrs.frozen(kw_only=True)
class SignalWait:
    """A signal that no step of the job has taken yet."""

    name: str
    key: str | None = None
    """Sent to this key; None: sent to the job."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": "signal", "name": self.name, "key": self.key}


@attrs.frozen(kw_only=True)
class ChildrenWait:
    """All children that a step has begun, with an ordinal below `upto`, have ended."""

    step: str
    upto: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": "child", "name": self.step, "upto": self.upto}


@attrs.frozen(kw_only=True)
class DecisionWait:
    """People have decided a request; only needed beside other waits."""

    id: UUID

    def to_json(self) -> dict[str, Any]:
        return {"kind": "approval", "name": str(self.id)}


Wait: TypeAlias = SignalWait | ChildrenWait | DecisionWait
