"""The way to a collector: batches of one signal, each sent until the collector answers for it.

Owns: the connection, and the batch that is on its way.

On failure: the batch is kept and sent again after a pause. An outage is logged once, at its
beginning and its end. A batch that the collector refuses is logged and dropped.
"""

import gzip
import random
from functools import partial
from typing import Final

import attrs
import structlog
import trio

from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError
from cortex.domain.failure import Failure, FailureClass
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.runtime.tracing.environment import ExportSettings

BACKOFF: Final = Backoff(base_s=1.0, cap_s=30.0)
_FORM: Final = ("Content-Type", "application/x-protobuf")
_log = structlog.get_logger(__name__)


@attrs.frozen
class _Batch:
    body: bytes
    """As it is sent."""
    count: int


class Collector:
    """Sends batches of one signal; `what` names its items in the log."""

    def __init__(self, settings: ExportSettings, *, what: str, rng: random.Random) -> None:
        self._settings = settings
        self._what = what
        self._rng = rng
        self._batch: _Batch | None = None
        self._failures_count = 0
        self.refused_count = 0
        """Items ever that the collector refused."""
        _, host, port_number = settings.target.origin
        # The operator names the collector, which is usually beside the pod.
        allowed = AllowedAddresses(endpoints=frozenset({(host.lower(), port_number)}))
        self._poster = Poster(allowed)
        self._headers = [_FORM, *settings.headers]
        if settings.is_compressed:
            self._headers.append(("Content-Encoding", "gzip"))

    @property
    def unsent_count(self) -> int:
        """How many items the batch has that is on its way; 0: there is none."""
        return 0 if self._batch is None else self._batch.count

    def pause_s(self) -> float:
        """Draw the pause before the next try; 0 unless the last one failed."""
        if not self._failures_count:
            return 0.0
        return BACKOFF.pause_s(self._failures_count, rng=self._rng, least=0.5)

    async def take(self, body: bytes, count: int) -> None:
        """Take an encoded batch on its way. There must be none."""
        if self._settings.is_compressed:
            compress = partial(gzip.compress, body, compresslevel=1)
            body = await trio.to_thread.run_sync(compress, abandon_on_cancel=True)
        self._batch = _Batch(body, count)

    async def send(self, *, dropped_count: int) -> bool:
        """Send the batch once; return whether the collector took it.

        `dropped_count`: how many items have not fit the caller's buffer, for the log.
        """
        batch = self._batch
        if batch is None:
            return True
        failure = await self._post(batch.body)
        if failure is not None and failure.cls.is_transient:
            if not self._failures_count:
                _log.warning("export failed", what=self._what, error=failure.message)
            self._failures_count += 1
            return False
        self._batch = None
        if failure is not None:
            self.refused_count += batch.count
            _log.warning(
                "batch refused by the collector",
                what=self._what,
                count=batch.count,
                error=failure.message,
            )
            return False
        if self._failures_count:
            self._failures_count = 0
            _log.info("export recovered", what=self._what, dropped=dropped_count)
        return True

    async def _post(self, body: bytes) -> Failure | None:
        """Return why the collector has not taken a batch within the set time."""
        try:
            with trio.fail_after(self._settings.timeout_s):
                answer = await self._poster.post(self._settings.target, self._headers, body)
        except (CortexError, OSError, trio.TooSlowError) as error:
            message = str(error) or f"no answer within {self._settings.timeout_s:g} s"
            return Failure(cls=FailureClass.TRANSIENT_INFRA, code="unavailable", message=message)
        return answer.failure(self._settings.target)

    async def aclose(self) -> None:
        await self._poster.aclose()
