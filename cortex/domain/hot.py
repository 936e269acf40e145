"""`hot`: `attrs.frozen` for values that are made for each job or each step.

They are immutable for the type checker only: at run time the refusal to change a field costs two
thirds of making the value.
"""

from functools import partial
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from attrs import frozen as hot
else:
    hot = partial(attrs.define, unsafe_hash=True)

__all__ = ["hot"]
