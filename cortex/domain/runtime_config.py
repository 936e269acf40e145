"""What a pod was configured with, and a job keeps from its first start: policies and prices."""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from cortex.domain.policy import JobPolicy, policy_for
from cortex.domain.prices import PriceTable


@attrs.frozen(kw_only=True)
class RuntimeConfig:
    """Immutable: a changed one is another one."""

    policies: Mapping[str, JobPolicy]
    prices: PriceTable

    def policy(self, job_type: str) -> JobPolicy:
        """Return the policy of a job type."""
        return self.policies.get(job_type) or policy_for(job_type)

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`."""
        return {
            "policies": {name: policy.to_json() for name, policy in self.policies.items()},
            "prices": self.prices.to_json(),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The configuration that `to_json` wrote."""
        return cls(
            policies={name: JobPolicy.from_json(each) for name, each in plain["policies"].items()},
            prices=PriceTable.from_json(plain["prices"]),
        )
