"""The steps of one job in memory."""

import attrs

from cortex.domain.job import Step, StepDone


@attrs.define
class StepRecord:
    """A journal's recorder: keeps the steps of a job, which survive the attempt."""

    steps: list[Step] = attrs.field(factory=list)
    heads: list[str | None] = attrs.field(factory=list)
    inputs: dict[str, str | None] = attrs.field(factory=dict)

    async def record(self, operation: StepDone) -> None:
        self.append(operation)

    async def send_ahead(self, operation: StepDone) -> None:
        await self.record(operation)

    def append(self, operation: StepDone) -> None:
        """Keep a step. Its key must be new, as in the database."""
        if operation.key in self.inputs and operation.key in self.keys:
            raise AssertionError(f"step {operation.key!r} is recorded twice")
        seq, head = operation.tally.number(operation)
        operation.tally.committed(operation)
        self.heads.append(head)
        self.inputs[operation.key] = operation.given
        self.steps.append(
            Step(
                seq=seq,
                key=operation.key,
                digest=operation.digest,
                output=operation.output,
                usage=operation.spent,
                cost_usd=operation.cost_usd,
                kind=operation.kind,
                amid=operation.amid,
                parent_key=operation.parent_key,
            )
        )

    async def recall(self, key: str) -> str | None:
        """Return the recorded input of a step."""
        return self.inputs.get(key)

    @property
    def keys(self) -> list[str]:
        return [step.key for step in self.steps]

    def output(self, key: str) -> str | None:
        """Return the output of a step as JSON text; None: it is not recorded."""
        return next((step.output for step in self.steps if step.key == key), None)
