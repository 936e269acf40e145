"""Totals of one job's record: the number of its last step, its tokens, its cost."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import orjson

from cortex.domain.job import Step, StepDone
from cortex.domain.usage import Usage
from cortex.durable.progress import Progress

_NO_USAGE: Final = Usage()
_NO_COST: Final = Decimal(0)


class Tally:
    """Gives the steps of one attempt their numbers, in the order in which they are committed."""

    __slots__ = ("_seq", "cost_usd", "progress", "usage")

    def __init__(self, steps: Sequence[Step]) -> None:
        """`steps` are those that earlier attempts committed, in order."""
        self._seq = 0
        self.usage, self.cost_usd, key = _NO_USAGE, _NO_COST, None
        if steps:
            self._seq, key = steps[-1].seq, steps[-1].key
            self.usage = sum((step.usage for step in steps if step.usage), start=_NO_USAGE)
            self.cost_usd = sum((step.cost_usd for step in steps if step.cost_usd), start=_NO_COST)
        self.progress = Progress(self._seq, key)

    def number(self, step: StepDone, /) -> tuple[int, str | None]:
        """Return the next number, and the head of the job once that step is in the record.

        None: the head has nothing but the step's number, kind and key.
        """
        seq = self._seq + 1
        if step.spent is None and self.usage is _NO_USAGE:
            return seq, None
        begin = f'{{"seq":{seq},"kind":"{step.kind.value}","key":{orjson.dumps(step.key).decode()}'
        total, total_usd = self._with(step)
        tokens = f'"input_tokens":{total.prompt_tokens},"output_tokens":{total.output_tokens}'
        if total.cache_read_tokens or total.cache_write_tokens:
            tokens += f',"cache_read_tokens":{total.cache_read_tokens}'
        return seq, f'{begin},{tokens},"cost_usd":"{total_usd}"}}'

    def committed(self, step: StepDone, /) -> None:
        """The step that was numbered last is in the record."""
        self._seq += 1
        self.progress.committed(self._seq, step.key, at=step.ended_at)
        if step.spent is not None or step.cost_usd is not None:
            self.usage, self.cost_usd = self._with(step)

    def _with(self, step: StepDone) -> tuple[Usage, Decimal]:
        total = self.usage if step.spent is None else self.usage + step.spent
        return total, self.cost_usd + (step.cost_usd or _NO_COST)
