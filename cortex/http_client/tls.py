"""The certificates that a process trusts: those of the machine, read once."""

import functools
import os
import ssl


def trusted() -> ssl.SSLContext:
    """Return the context that all clients of this process share: reading it takes 40 ms of CPU.

    Like the client's own it honours SSL_CERT_FILE and SSL_CERT_DIR.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _read(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 -- a tenth of a pod's start

    return httpx2.create_ssl_context()
