"""The way to a collector: one target, its headers, and what its answers mean."""

import gzip
from functools import partial
from typing import Final

import trio

from cortex.domain.errors import CortexError
from cortex.domain.failure import Failure, FailureClass
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.runtime.tracing.environment import ExportSettings

_FORM: Final = ("Content-Type", "application/x-protobuf")


class Collector:
    """Posts encoded batches of one signal."""

    def __init__(self, settings: ExportSettings) -> None:
        self._settings = settings
        _, host, port_number = settings.target.origin
        # The operator names the collector, which is usually beside the pod.
        allowed = AllowedAddresses(endpoints=frozenset({(host.lower(), port_number)}))
        self._poster = Poster(allowed)
        self._headers = [_FORM, *settings.headers]
        if settings.is_compressed:
            self._headers.append(("Content-Encoding", "gzip"))

    async def packed(self, body: bytes) -> bytes:
        """Return a body as it is sent: compressed, if that is set."""
        if not self._settings.is_compressed:
            return body
        compress = partial(gzip.compress, body, compresslevel=1)
        return await trio.to_thread.run_sync(compress, abandon_on_cancel=True)

    async def post(self, packed: bytes) -> Failure | None:
        """Send a batch within the set time; return why the collector has not taken it."""
        try:
            with trio.fail_after(self._settings.timeout_s):
                answer = await self._poster.post(self._settings.target, self._headers, packed)
        except (CortexError, OSError, trio.TooSlowError) as error:
            message = str(error) or f"no answer within {self._settings.timeout_s:g} s"
            return Failure(cls=FailureClass.TRANSIENT_INFRA, code="unavailable", message=message)
        return answer.failure(self._settings.target)

    async def aclose(self) -> None:
        await self._poster.aclose()
