from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.prices import PRICES_AS_OF
from cortex.domain.usage import Usage
from cortex.store import facts
from cortex.store.facts import Fact
from cortex.view.phrases import NOTHING
from tests.support.command_line import Cortex
from tests.support.life import CHANCE, Life

USAGE = Usage(input_tokens=1200, output_tokens=34, cache_read_tokens=500)
SAVED_USD = "0.25"


def called(
    life: Life, job_id: UUID, usd: str | None, *, outcome: str = "kept", **fields: Any
) -> None:
    fact = Fact(
        type="cost",
        subtype="model_call",
        job_id=job_id,
        call_id=CHANCE.new_id(),
        amount_usd=None if usd is None else Decimal(usd),
        data={
            "model": fields.pop("model", "scripted"),
            "outcome": outcome,
            "usage": fields.pop("usage", USAGE).to_json(),
            "estimated": outcome == "lost",
            "saved_usd": SAVED_USD,
        },
        **{"step": "turn-1"} | fields,
    )
    life.call(facts.append, [fact])


def agent_of(life: Life) -> UUID:
    life.agent()
    found: Sequence[Any] = life.sql("SELECT id FROM cortex.agent")
    return UUID(str(found[0]["id"]))


def test_costs_of_agents_with_a_total(cortex: Cortex, life: Life) -> None:
    job, agent = life.job(), agent_of(life)
    called(life, job, "1.25", agent_id=agent)
    called(life, job, "0.75", agent_id=agent)
    called(life, life.job(), "0.0042")
    terminal = cortex.on_terminal("costs", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    lines = [line.split() for line in terminal.text.splitlines() if line.strip()]
    head = "agent calls in out cached written hit saved cost paid again of the cost"
    assert lines[0] == head.split()
    saved = ["29%", "$0.5000"]
    line = ["researcher", "2", "2.4k", "68", "1.0k", "0", *saved, "$2.00", "1.7k", "$1.25"]
    assert lines[1] == line
    saved = ["29%", "$0.2500"]
    assert lines[2] == [NOTHING, "1", "1.2k", "34", "500", "0", *saved, "$0.0042", "0", NOTHING]
    saved = ["29%", "$0.7500"]
    line = ["total", "3", "3.6k", "102", "1.5k", "0", *saved, "$2.00", "1.7k", "$1.25"]
    assert lines[3] == line


def test_total_differs_from_a_group_without_a_terminal(cortex: Cortex, life: Life) -> None:
    called(life, life.job(), "1")
    lines = cortex("costs", "--no-headers").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["", "total"]  # "": calls without an agent


def test_unknown_price_is_never_shown_as_zero(cortex: Cortex, life: Life) -> None:
    called(life, life.job(), None, model="a")
    called(life, life.job(), "2", model="b")
    called(life, life.job(), None, model="b", outcome="lost")
    terminal = cortex.on_terminal("costs", "--by", "model", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    rows = {line.split()[0]: line.split() for line in terminal.text.splitlines() if line.strip()}
    assert rows["a"][8] == "unknown"
    assert rows["b"][8:11] == ["$2.00", "+", "?"]
    assert rows["b"][-1] == "unknown"  # what was paid again
    assert "calls without a known price, not included: 2" in terminal.text
    assert f"list prices of {PRICES_AS_OF.day} " in terminal.text
    assert "calls that were lost or not counted, estimated: 1" in terminal.text


def test_json_output_has_every_figure(cortex: Cortex, life: Life) -> None:
    job = life.job()
    called(life, job, "1", outcome="failed")
    called(life, job, "2")
    shown = cortex("costs", "--by", "job", "--json").document
    assert shown["list_prices_as_of"] == PRICES_AS_OF.isoformat()
    assert (shown["schema_version"], shown["by"], shown["since_s"]) == (1, "job", 30 * 86_400)
    (row,) = shown["costs"]
    assert row == shown["total"] | {"name": str(job)}
    assert shown["total"] == {
        "name": None,
        "calls": 2,
        "input_tokens": 2400,
        "output_tokens": 68,
        "cache_read_tokens": 1000,
        "cache_write_tokens": 0,
        "cache_hit": 1000 / 3400,
        "cache_saved_usd": 0.5,
        "cost_usd": 3.0,
        "unpriced_calls": 0,
        "estimated_calls": 0,
        "again_calls": 1,
        "again_tokens": 1734,
        "again_usd": 1.0,
        "again_unpriced_calls": 0,
    }
    (line,) = cortex("costs", "--by", "job", "-o", "jsonl").documents
    assert (line["name"], line["cost_usd"]) == (str(job), 3.0)
    assert cortex("costs", "--by", "job", "-o", "name").out == f"{job}\n"
    chosen = cortex("costs", "--by", "job", "--json", "--columns", "cost_usd").document
    assert chosen["costs"] == [{"cost_usd": 3.0}]


def test_only_as_far_back_as_asked(cortex: Cortex, life: Life) -> None:
    called(life, life.job(), "1")
    life.sql("ALTER TABLE cortex.fact DISABLE TRIGGER ALL")
    life.sql("UPDATE cortex.fact SET at = at - interval '2 days'")
    called(life, life.job(), "2")
    for since, cost in (("12h", 2.0), ("3d", 3.0), ("4w", 3.0)):
        total = cortex("costs", "--by", "day", "--since", since, "--json").document["total"]
        assert total["cost_usd"] == cost
    days = cortex("costs", "--by", "day", "--since", "3d", "--json").document["costs"]
    assert [day["cost_usd"] for day in days] == [2.0, 1.0]


def test_empty_costs_print_a_message(cortex: Cortex, life: Life) -> None:
    ended = cortex("costs")
    assert (ended.code, ended.out) == (0, "")
    assert "no model was called in the last 30d" in ended.err
    assert cortex("costs", "--json").document["total"]["calls"] == 0


@pytest.mark.parametrize(
    "arguments, output",
    [
        (("--by", "moon"), "moon"),
        (("--since", "0d"), "'0d' is not above 0"),
        (("--since", "99999w"), "'99999w' is more than"),
        (("--since", "yesterday"), "'yesterday' is not a time"),
    ],
)
def test_wrong_calls_are_refused(
    cortex_nowhere: Cortex, arguments: tuple[str, ...], output: str
) -> None:
    ended = cortex_nowhere("costs", *arguments)
    assert ended.code == 2
    assert output in ended.err


def test_names_in_costs_are_escaped(cortex: Cortex, life: Life) -> None:
    called(life, life.job(), "1", tenant="evil\x1b[2J")
    terminal = cortex.on_terminal("costs", "--by", "tenant")
    assert terminal.end() == 0
    assert "\x1b[2J" not in terminal.text


def test_call_without_usage_costs_zero(cortex: Cortex, life: Life) -> None:
    called(life, life.job(), None, model="unpriced", outcome="failed", usage=Usage())
    called(life, life.job(), "1")
    ended = cortex("costs", "--by", "model", "--json")
    total = ended.document["total"]
    assert (total["cost_usd"], total["unpriced_calls"], total["again_unpriced_calls"]) == (1, 0, 0)
    assert total["again_usd"] == 0
    called(life, life.job(), None, model="unpriced")
    assert cortex("costs", "--json").document["total"]["unpriced_calls"] == 1
