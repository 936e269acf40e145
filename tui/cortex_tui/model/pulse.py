"""What the first screen knows of the cluster, as far as it was read."""

from collections.abc import Mapping
from typing import Any

import attrs

from cortex.store.operator import Head
from cortex.store.pulse import Figures, Recent, Trouble


@attrs.define(kw_only=True)
class Pulse:
    """None: not read yet."""

    head: Head | None = None
    figures: Figures | None = None
    recent: Recent | None = None
    troubles: list[Trouble] | None = None
    queues: list[Mapping[str, Any]] | None = None
    """Rows of `cortex.store.queues`."""
