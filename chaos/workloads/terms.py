"""How the world outside answers the requests of programs, by the kind of their operation."""

from typing import Final

from chaos.cluster.ledger import Terms
from chaos.workloads.program import Op

TERMS: Final = {
    Op.IDEMPOTENT: Terms(honours_key=True, is_queryable=False),
    # An attempt that gets "not applied" may apply it: no older attempt can any more.
    Op.RECONCILABLE: Terms(honours_key=False, is_fenced=True),
    Op.UNSAFE: Terms(honours_key=False, is_queryable=False),
    Op.RENAMED: Terms(honours_key=False, is_queryable=False),
}
_BY_NAME: Final = {op.value: terms for op, terms in TERMS.items()}


def terms_of(account: str) -> Terms:
    """The terms of an account of `chaos.workloads.program.account`, or the default terms."""
    kind = account.partition(":")[0]
    return _BY_NAME.get(kind, Terms())
