"""A decision of a job in its own process, which must be on record before what follows it."""

from typing import Any, cast

import pytest
import trio

from cortex.domain.clock import system_chance
from cortex.domain.errors import UnavailableError
from cortex.durable.journal import Journal
from cortex.runtime.isolation.runner import _Remote
from cortex.runtime.isolation.wire import Channel
from tests.support.records.factories import a_lease


class SilentLine:
    """A pod that does not answer."""

    async def call(self, _what: str, /, **_given: Any) -> None:
        await trio.sleep_forever()


async def test_a_decision_that_was_not_recorded_fails_the_attempt(autojump_clock: object) -> None:
    remote = _Remote(cast("Channel", SilentLine()), system_chance())
    journal = Journal(a_lease(), remote, ())
    journal.patched("new way")
    with pytest.raises(UnavailableError, match="'patched: new way' was not recorded"):
        await journal.send_patches()
