"""What the first screen knows of the cluster, as far as it was read."""

import attrs

from cortex.store.operator import Head
from cortex.store.pulse import Figures, Recent, Trouble
from cortex.store.queues import QueueRow


@attrs.define(kw_only=True)
class Pulse:
    """None: not read yet."""

    head: Head | None = None
    figures: Figures | None = None
    recent: Recent | None = None
    troubles: list[Trouble] | None = None
    queues: list[QueueRow] | None = None
