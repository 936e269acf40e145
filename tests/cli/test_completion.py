"""What shells complete, as they ask for it."""

import socket
import time

import pytest

from cortex.domain.queueing.pauses import Pausable
from cortex.store import pauses
from tests.cli.test_imports import RUN, imported
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import Life

STATES = (
    "pend run appr retry done fail canc asks effect budget person sleep signal child limit batch "
    "code"
)


def completed(cortex: Cortex, *words: str) -> list[str]:
    """The values that bash offers for the last word."""
    env = {
        "_CORTEX_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("cortex", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return [line.removeprefix("plain,") for line in cortex(env=env).out.split()]


@pytest.mark.parametrize(
    "line, values",
    [
        ("pods ls --columns name,st", "name,state name,started_at"),
        ("patches --columns und", "undecided undecided_job"),
        ("queues ls --columns state,sta", ""),
        ("runners ls -o w", "wide"),
        ("queues order nightly st", "strict"),
        ("facts --type c", "cost"),
        ("jobs ls ty", "type:"),
        ("jobs ls stat", " ".join(f"status:{state}" for state in STATES.split())),
        ("jobs ls type:crawl status:run,a", "status:run,appr status:run,asks"),
        ("jobs ls status : re", "retry"),  # bash splits words at colons
        ("jobs ls type:", ""),
        ("jobs ls type : t", ""),
        ("jobs ls letter:ar", "letter:archived"),
        ("jobs ls fing", "fingerprint:"),
        ("dead ls class : perm", "permanent"),
        ("dead retry --filter letter:open,esc", "letter:open,escalated"),
        ("jobs ls --status run,as", "run,asks"),
        ("pause t", "type: tenant:"),
        ("pause al", "all"),
        ("pause all : a", ""),
    ],
)
def test_shells_complete_columns_values_and_terms_of_filters(
    cortex_nowhere: Cortex, line: str, values: str
) -> None:
    assert completed(cortex_nowhere, *line.split()) == values.split()


def test_bash_completes_the_value_after_a_colon(cortex_nowhere: Cortex) -> None:
    assert completed(cortex_nowhere, "jobs", "ls", "status", ":") == STATES.split()


def test_completion_imports_the_resource_of_its_command_only(cortex_nowhere: Cortex) -> None:
    def resources(words: str) -> set[str]:
        asked = {"_CORTEX_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
        lines = f"import os; os.environ.update({asked!r}); {RUN.format(words=[])}"
        return {name for name in imported(cortex_nowhere, lines) if ".view.resources." in name}

    assert resources("cortex queues ls --columns st") == {"cortex.view.resources.queues"}
    assert not resources("cortex version -o js")


def test_shells_complete_ids_and_names_of_the_database(
    cortex: Cortex, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.cli.completing.WITHIN_S", WITHIN_S)  # the machine may be busy
    life.type()
    life.agent("researcher")
    job = str(life.job(queue_name="billing"))
    other = str(life.job(queue_name="$(touch-x)"))  # a shell would run it
    ends = {job[-6:], other[-6:]}
    assert {*completed(cortex, "jobs", "show", "")} == ends
    assert {*completed(cortex, "why", "")} == ends
    assert completed(cortex, "jobs", "wait", job, other[-6:-2]) == [other[-6:]]
    assert {*completed(cortex, "logs", job[:9])} == {job, other}  # they begin in the same second
    assert completed(cortex, "queues", "order", "") == ["default", "billing"]
    assert "digest" in completed(cortex, "submit", "")
    assert completed(cortex, "jobs", "ls", "--type", "dig") == ["digest"]
    assert completed(cortex, "agents", "show", "r") == ["researcher"]
    assert completed(cortex, "dead", "show", "") == []
    assert completed(cortex, "pause", "type:dig") == ["type:digest"]
    assert completed(cortex, "pause", "type", ":", "dig") == ["digest"], "as bash splits it"
    assert completed(cortex, "pause", "queue", ":") == ["default", "billing"]
    assert completed(cortex, "pause", "tenant:") == ["tenant:default"]
    assert {*completed(cortex, "pause", "job", ":")} == ends
    assert completed(cortex, "resume", "") == []
    life.call(pauses.pause, Pausable.parse("queue:billing"), by="ana", reason="why")
    assert completed(cortex, "resume", "") == ["queue:billing"]
    assert completed(cortex, "resume", "queue", ":") == ["billing"]


def test_completion_without_a_database_offers_nothing_and_starts_none(
    cortex_nowhere: Cortex,
) -> None:
    assert completed(cortex_nowhere, "jobs", "show", "") == []
    assert not (cortex_nowhere.folder / "data").exists()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/none"
        began = time.monotonic()
        assert completed(cortex_nowhere, "jobs", "show", "--dsn", dsn, "") == []
        assert time.monotonic() - began < WITHIN_S
