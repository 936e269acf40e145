"""A process's environment: its packages, and problems that make requests or files impossible."""

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from cortex.domain.errors import UsageError
from cortex.http_client.proxies import Proxies
from cortex.http_client.tls import trusted

_INSTALLED: Final = (".dist-info", ".egg-info")


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


def packages() -> tuple[str, ...]:
    """Return the installed packages with their versions, sorted, as their folders name them."""
    found = set()
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                found |= {
                    entry.name.rpartition(".")[0]
                    for entry in entries
                    if entry.name.endswith(_INSTALLED)
                }
        except OSError:
            continue  # no folder, or none of ours
    return tuple(sorted(found))
