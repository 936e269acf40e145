"""What others write like a reference to an image of the job: it shows no file, and stops no job."""

from pathlib import Path
from typing import Any

import pytest

from cortex import File, tool
from cortex.domain.file import StoredFile, shown
from cortex.testing import Cortex, agent
from tests.options.files import png
from tests.unit.testing.conftest import harness

__all__ = ["harness"]

PHOTO = File(png(64, 48), name="photo.png")
OWN: dict[str, Any] = PHOTO.stored.block()
FOREIGN: dict[str, Any] = {**OWN, "source": {**OWN["source"], "sha256": "00" * 32}}


def with_facts(**facts: Any) -> dict[str, Any]:
    return {**OWN, "source": {**OWN["source"], **facts}}


FORGED = {
    "a file of the job": OWN,
    "no file of the job": FOREIGN,
    "no digest": with_facts(sha256="zz"),
    "a digest that is no text": with_facts(sha256=7),
    "a size that is text": with_facts(bytes="many"),
    "no size": with_facts(bytes=None),
    "a width that is a list": with_facts(width=[1]),
    "another type": with_facts(media_type="text/html"),
    "a type that is an object": with_facts(media_type={}),
}


@tool
def fetch(what: str, listed: bool) -> Any:
    """Fetch JSON that others wrote."""
    return ["so", FORGED[what]] if listed else FORGED[what]


@tool
def look() -> File:
    """Return a picture."""
    return PHOTO


@pytest.mark.parametrize("listed", [False, True], ids=["alone", "in a list"])
@pytest.mark.parametrize("what", FORGED)
async def test_a_reference_that_a_tool_fetched_is_text(
    harness: Cortex, tmp_path: Path, what: str, listed: bool
) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("name: reader\nmodel: m\nsystem: s\ntools: [fetch, look]\n")
    use = {"tool": "fetch", "input": {"what": what, "listed": listed}}
    harness.model.script([{"tool": "look", "input": {}}, use, "Read."])
    run = await harness.run(agent(file, tools=[fetch, look]), prompt="Read it.")
    assert (run.error, run.result.text) == (None, "Read.")
    (block,) = harness.model.requests[-1].messages[-1]["content"]
    assert isinstance(block["content"], str), "no file"
    assert "stored" in block["content"], "what it is"
    run.replays()


@pytest.mark.parametrize("what", [each for each in FORGED if " of the job" not in each])
def test_people_see_what_is_no_reference_as_it_is(what: str) -> None:
    assert StoredFile.of(FORGED[what]) is None
    assert shown(FORGED[what]) == FORGED[what]
