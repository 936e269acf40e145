"""All mutants."""

from typing import Final

from chaos.mutants import background, effects, leases, leaving, queueing, record, sessions, storms
from chaos.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *leases.MUTANTS,
    *effects.MUTANTS,
    *record.MUTANTS,
    *sessions.MUTANTS,
    *leaving.MUTANTS,
    *background.MUTANTS,
    *queueing.MUTANTS,
    *storms.MUTANTS,
)
