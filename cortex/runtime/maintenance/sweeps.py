"""The list of periodic work that any pod does for all pods.

To add a sweep, write its runner in this folder and name it here.
"""

from cortex.actors.runner import Runner
from cortex.domain.clock import Chance
from cortex.postgres.bridge import Port
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.maintenance.expiries import Expiries
from cortex.runtime.maintenance.housekeeping import Housekeeping
from cortex.runtime.maintenance.reconciler import Reconciler
from cortex.runtime.maintenance.retries import Retries
from cortex.runtime.maintenance.triage import Triage


def sweeps(
    port: Port, *, unsettled: PendingSettlements, chance: Chance, sweep_s: float
) -> tuple[Runner, ...]:
    """Return the sweeps; none of them needs a pod. `sweep_s` is the setting of that name."""
    rng = chance.rng
    return (
        Retries(port, rng=rng),
        Expiries(port, rng=rng),
        Reconciler(port, unsettled=unsettled, rng=rng),
        Housekeeping(port, rng=rng, every_s=sweep_s),
        Triage(port, rng=rng, chance=chance),
    )
