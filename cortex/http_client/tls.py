"""The certificates that a process trusts: those of the machine, read once."""

import errno
import functools
import os
import ssl

from cortex.domain.errors import UsageError


def trusted() -> ssl.SSLContext:
    """Return the context that all clients of this process share: reading it takes 40 ms of CPU.

    Like the client's own it honours SSL_CERT_FILE and SSL_CERT_DIR. Raises `UsageError` that names
    the variable if they cannot be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if not file and folder and not any(map(os.path.isdir, folder.split(os.pathsep))):
            raise FileNotFoundError(errno.ENOENT, "no such folder")  # OpenSSL trusts none then
        return _read(file, folder)
    except OSError as error:  # includes TLS errors
        named = (("SSL_CERT_FILE", file), ("SSL_CERT_DIR", folder))
        place = next((f"{name}={value}" for name, value in named if value), "those of this machine")
        raise UsageError(
            f"the certificates cannot be read: {place}: {error}",
            hint="set SSL_CERT_FILE or SSL_CERT_DIR to readable ones, or unset them",
        ) from error


@functools.cache
def _read(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 -- a tenth of a pod's start

    return httpx2.create_ssl_context()
