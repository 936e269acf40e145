"""The defaults of an approval: what holds where an agent, a tool or a job's code says nothing."""

from typing import Final

from cortex.domain.approvals.approval import Follow, Risk

EXPIRES_DEFAULT_S: Final = 86_400
"""How long it waits for people, in seconds."""
RISK_DEFAULT: Final = Risk.MED
ON_DENY_DEFAULT: Final[Follow] = "tell"
ON_EXPIRY_OF_TOOL: Final[Follow] = "fail"
"""If nobody decides about a call of an agent."""
ON_EXPIRY_OF_CODE: Final[Follow] = "tell"
"""If nobody decides about a gate in a job's code: it gets `ApprovalExpiredError`."""
