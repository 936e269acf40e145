"""How the world outside takes what programs ask of it, by the kind of their operation."""

from typing import Final

from chaos.cluster.ledger import Terms
from chaos.workloads.program import Op

TERMS: Final = {
    Op.IDEMPOTENT: Terms(honours_key=True, can_be_asked=False),
    # Who was told that nothing was applied may apply it: no older attempt can any more.
    Op.RECONCILABLE: Terms(honours_key=False, is_fenced=True),
    Op.UNSAFE: Terms(honours_key=False, can_be_asked=False),
    Op.RENAMED: Terms(honours_key=False, can_be_asked=False),
}
_BY_NAME: Final = {op.value: terms for op, terms in TERMS.items()}


def terms_of(account: str) -> Terms:
    """The terms of an account of `chaos.workloads.program.account`; of others, all that helps."""
    kind = account.partition(":")[0]
    return _BY_NAME.get(kind, Terms())
