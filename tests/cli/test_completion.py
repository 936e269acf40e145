"""What shells complete, as they ask for it."""

import pytest

from tests.cli.test_imports import RUN, imported
from tests.support.command_line import Cortex

STATES = "pend run appr retry done fail canc asks effect budget person sleep code"


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
