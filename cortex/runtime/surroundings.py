"""Problems of a process's environment that make requests or temporary files impossible."""

import os
import tempfile
from collections.abc import Iterator

from cortex.domain.errors import UsageError
from cortex.http_client.proxies import Proxies
from cortex.http_client.tls import trusted


def problems() -> Iterator[UsageError]:
    """Yield each problem, in one line with its way out.

    A pod runs all the same: many jobs need none of this. Blocks while it reads certificates.
    """
    yield from Proxies.of_environment().problems()
    if any(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")):
        try:
            trusted()
        except UsageError as error:
            yield error
    try:
        tempfile.gettempdir()
    except OSError:
        yield UsageError(
            "no folder for temporary files is writable: programs of agents do not start",
            hint="set TMPDIR to a writable folder, or mount one at /tmp",
        )
