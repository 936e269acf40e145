"""`cortex effects resolve`: a person records the outcome of an unknown effect."""

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.files import read_bytes
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.canonical import canonical, parse
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.limits import CHECKPOINT
from cortex.domain.phrases import short_id
from cortex.store import effects
from cortex.view.cells import Cell, Row
from cortex.view.effects import STATES, people_missing, prospects
from cortex.view.resource import Field
from cortex.view.verbs import RESOLVE_EFFECT


@click.command(cls=Command)
@click.argument("name", metavar="ID", shell_complete=known("effect"))
@click.argument(
    "resolution",
    type=click.Choice([each.value for each in Resolution]),
    metavar="applied|not-applied|give-up",
)
@click.option("--result", metavar="JSON", help="What the call returned, if it was applied [null].")
@click.option("--result-file", metavar="FILE", help="The same, from a file or stdin (-).")
@changes(RESOLVE_EFFECT)
def resolve(
    change: ChangeRequest,
    *,
    name: str,
    resolution: str,
    result: str | None,
    result_file: str | None,
) -> None:
    """Record whether an unknown effect was applied; a job that waits for it continues.

    Check the other system first: a wrong answer makes the effect happen twice, or never. That an
    approved call was not applied takes as many people as its approval. Exits with 5 if the outcome
    is no longer needed.
    """
    answer = Resolution(resolution)
    returned = _returned(answer, result, result_file)
    with session(change.options) as call:
        effect_id = call(effects.find, name)
        effect = call(effects.show, effect_id)
        question = (
            f"{effect.tool} {short_id(effect_id)} {_SAID[answer]}: {prospects(effect)[answer]}"
        )
        change.confirm(question)
        row = change.write_as_person(
            call,
            partial(
                effects.resolve_and_show,
                effect_id=effect_id,
                resolution=answer,
                result=returned,
            ),
            operation="effects.resolve",
            request={"effect": effect_id, "resolution": answer, "result": returned},
        )
    change.output.listing("effects", COLUMNS, [row | {"id": UUID(row["id"])}], empty="")


def _returned(answer: Resolution, result: str | None, result_file: str | None) -> str | None:
    """Return the given result as canonical JSON. Raises `UsageError`, `InvalidValueError`."""
    if result is None and result_file is None:
        return None
    if answer is not Resolution.APPLIED or (result is not None and result_file is not None):
        raise UsageError("give one result, and only for an effect that was applied")
    if result_file is not None:
        raw = read_bytes(result_file, what="result", bytes_max=CHECKPOINT.bytes_max)
        try:
            result = raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidValueError("the result is not UTF-8") from error
    text = canonical(parse(result or "", what="result"), what="result")
    CHECKPOINT.check(len(text.encode()), what="result")
    return text


_SAID: Final = {
    Resolution.APPLIED: "was applied",
    Resolution.NOT_APPLIED: "was not applied",
    Resolution.GIVE_UP: "is given up",
}


def _summary(row: Row) -> str:
    if row["people_missing"]:
        return people_missing(row["people_missing"])
    if row["job_goes_on"]:
        return "continues now"
    if EffectStatus(row["status"]) is EffectStatus.PENDING:
        return "will call again when it continues"
    return f"is {row['job_status']}"


COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r["id"]), "bold")),
    Field(name="tool", least=10),
    Field(name="status", title="state", shown=lambda r: STATES[EffectStatus(r["status"])]),
    Field(name="job_id", title="job", shown=lambda r: Cell(f"…{r['job_id'][-6:]}")),
    Field(
        name="remark",
        title="the job",
        value=_summary,
        shown=lambda r: Cell(_summary(r)),
        is_for_people=True,
    ),
    Field(name="resolution", is_default=False),
    Field(name="job_goes_on", is_default=False),
    Field(name="people_missing", is_default=False),
)
