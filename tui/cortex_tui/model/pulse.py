"""What the first screen knows of the cluster, as far as it was read."""

import attrs

from cortex.store.metrics import Figures
from cortex.store.operator import Head
from cortex.store.pulse import Recent, Trouble
from cortex_tui.backend.protocol import QueueRow


@attrs.define(kw_only=True)
class Pulse:
    """None: not read yet."""

    head: Head | None = None
    figures: Figures | None = None
    recent: Recent | None = None
    troubles: list[Trouble] | None = None
    queues: list[QueueRow] | None = None
