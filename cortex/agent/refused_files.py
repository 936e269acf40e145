"""Leaves out files that the model's API refuses, so that one broken image does not end its agent.

What a picture looks like inside shows only there. The files of a prompt are not left out: the
job fails with what the API refused, for the person who gave them.
"""

from typing import Final

import attrs

from cortex.agent.transcript import Transcript
from cortex.domain.classification import failure_of
from cortex.domain.errors import CortexError
from cortex.domain.redaction import clean_text
from cortex.durable.context import Context

REFUSED: Final = "invalid_request"
"""The code of a request that the API does not take as it is."""
WITHOUT: Final = ", without files"


@attrs.frozen
class RefusedFiles:
    """The files of the newest tool results of one conversation."""

    ctx: Context
    transcript: Transcript
    prefix: str

    def step(self, number: int) -> str:
        return f"{self.prefix}{number} without files"

    async def left_out(self, number: int, error: CortexError | None = None) -> str:
        """Leave them out of a turn's request if its API has refused it.

        One recorded step, whose output is the reason; without an `error` only if it is on record.
        Return what follows the name of the request's step: empty if nothing is left out.
        """
        digests = self.transcript.new_files
        if not self.ctx.was_recorded(self.step(number)) and (
            error is None or not digests or failure_of(error).code != REFUSED
        ):
            return ""

        async def why() -> str:
            return "" if error is None else clean_text(error.message)

        await self.ctx.group(self.step(number), why, given={"files": digests})
        self.transcript.leave_out_new_files()
        return WITHOUT
