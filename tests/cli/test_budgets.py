import getpass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Suspend
from cortex.store import facts, tasks
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me

WHY = ("--reason", "a test")
DAY = "tenant:default:usd:day"


def listed(cortex: Cortex) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in cortex("budgets", "ls", "--json").document["budgets"]}


def waiting(life: Life, name: str) -> UUID:
    """A job that waits for a person to raise this budget."""
    pod, job_id = life.pod(), life.job()
    suspend = Suspend(
        lease=life.claim(pod).lease, delay_s=None, is_counted=False, waiting_on=f"budget:{name}"
    )
    assert life.call(tasks.suspend, pod_id=pod, operations=[suspend])
    return job_id


def use(
    life: Life, name: str, window: str | None = None, *, spent: str, reserved: str = "0"
) -> None:
    """Book an amount on a run or a day; today by default."""
    query = """
        INSERT INTO cortex.budget_use (budget_id, window_key, spent, reserved)
        SELECT id, coalesce($2, (cortex.now() AT TIME ZONE 'UTC')::date::text), $3, $4
        FROM cortex.budget WHERE name = $1
    """
    life.sql(query, name, window, Decimal(spent), Decimal(reserved))


def test_a_limit_is_set_for_an_agent_a_tenant_and_a_job(cortex: Cortex, life: Life) -> None:
    life.agent()
    job = str(life.job())
    for arguments in (
        ("--agent", "researcher", "--usd", "5", "--per", "day"),
        ("--tenant", "acme", "--tokens", "200000"),
        ("--job", job[-6:], "--usd", "0.5", "--per", "run"),
    ):
        assert cortex("budgets", "set", *arguments, *WHY).code == 0
    rows = listed(cortex)
    assert {name: row["limit"] for name, row in rows.items()} == {
        "agent:researcher:usd:day": 5.0,
        "tenant:acme:tokens:run": 200_000.0,
        f"job:{job}:usd:run": 0.5,
    }
    row = rows["agent:researcher:usd:day"]
    assert (row["changed_by"], row["reason"], row["left"]) == (getpass.getuser(), "a test", 5.0)


def test_continued_job_shares_the_budget_of_its_lineage(cortex: Cortex, life: Life) -> None:
    first, second = life.job(), life.job()
    life.sql(
        "UPDATE cortex.job_record SET origin_id = $1, lineage_id = $1 WHERE id = $2", first, second
    )
    assert cortex("budgets", "set", "--job", str(second), "--usd", "1", *WHY).code == 0
    assert list(listed(cortex)) == [f"job:{first}:usd:run"]


def test_a_named_budget_is_set_in_its_own_unit(cortex: Cortex, life: Life) -> None:
    changed = cortex("budgets", "set", DAY, "--usd", "2", *WHY, "--as", "ana", "--json")
    assert changed.document["budgets"] == [
        {"name": DAY, "before": None, "after": 2.0, "woken_jobs": 0}
    ]
    lower = cortex("budgets", "set", DAY, "--usd", "1.5", *WHY, "--json")
    assert lower.document["budgets"][0]["before"] == 2.0
    for wrong in (("--tokens", "5"), ("--usd", "5", "--per", "run")):
        ended = cortex("budgets", "set", DAY, *wrong, *WHY)
        assert ended.code == 2
        assert f"budget {DAY} counts usd per day" in ended.err
    (newest, first) = life.call(facts.page, types=["lifecycle"], since_s=60, source=f"budget:{DAY}")
    assert first.data == {"by": me("ana"), "reason": "a test", "before": None, "after": 2}
    assert newest.data["before"] == 2


def test_budgets_ls_shows_the_rest_and_the_waiting_jobs(cortex: Cortex, life: Life) -> None:
    cortex("budgets", "set", DAY, "--usd", "5", *WHY)
    cortex("budgets", "set", "--tenant", "default", "--tokens", "9000", *WHY)
    use(life, DAY, spent="4.5", reserved="1")
    use(life, DAY, "2001-01-01", spent="9")
    job = str(waiting(life, DAY))
    use(life, "tenant:default:tokens:run", job, spent="12000")
    rows = listed(cortex)
    day = rows[DAY]
    assert (day["spent"], day["reserved"], day["left"], day["waiting_jobs"]) == (4.5, 1.0, 0.0, 1)
    terminal = cortex.on_terminal("budgets", "ls", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    tokens, usd = (" ".join(line.split()) for line in terminal.text.splitlines()[1:3])
    assert tokens.startswith("tenant:default:tokens:run 9,000 tokens 12,000 tokens 0 tokens")
    assert f"run …{job[-6:]}" in tokens
    assert usd == f"{DAY} $5.00 $4.50 $0.00 1 $1.00 today"


def test_raise_resumes_jobs_and_is_recorded(cortex: Cortex, life: Life) -> None:
    cortex("budgets", "set", DAY, "--usd", "1", *WHY)
    use(life, DAY, spent="1.02")
    job_id = waiting(life, DAY)
    too_little = cortex("budgets", "raise", DAY, "--to", "1.01", *WHY, "--json")
    assert too_little.document["budgets"][0]["woken_jobs"] == 0
    raised = cortex(
        "budgets", "raise", DAY, "--to", "5", "--reason", "go on", "--as", "bo", "--json"
    )
    assert raised.document["budgets"] == [
        {"name": DAY, "before": 1.01, "after": 5.0, "woken_jobs": 1}
    ]
    (task,) = life.sql(
        "SELECT state, attempt, max_attempts FROM cortex_worker.task WHERE job_id = $1", job_id
    )
    assert tuple(task) == ("READY", 1, 3)
    (fact, *_) = life.call(facts.page, types=["lifecycle"], since_s=60)
    assert (fact.subtype, fact.data["by"], fact.data["reason"]) == (
        "budget_raised",
        me("bo"),
        "go on",
    )
    again = cortex("budgets", "raise", DAY, "--to", "5", *WHY)
    assert again.code == 5
    assert f"budget {DAY} is $5.00 already" in again.err


def test_under_a_key_a_raise_is_made_once(cortex: Cortex, life: Life) -> None:
    cortex("budgets", "set", DAY, "--usd", "1", *WHY)
    arguments = ("budgets", "raise", DAY, "--to", "5", *WHY, "--idempotency-key", "k", "--json")
    first, second = cortex(*arguments).document, cortex(*arguments).document
    assert second == first | {"replayed": True}
    assert len(life.call(facts.page, types=["lifecycle"], since_s=60, source=f"budget:{DAY}")) == 2


def test_a_budget_is_removed(cortex: Cortex, life: Life) -> None:
    cortex("budgets", "set", DAY, "--usd", "0", *WHY)
    waiting(life, DAY)
    asked = cortex("budgets", "rm", DAY, *WHY)
    assert asked.code == 2
    assert "hint: add --yes" in asked.err
    gone = cortex("budgets", "rm", DAY, *WHY, "--yes", "--json")
    assert gone.document["budgets"] == [
        {"name": DAY, "before": 0.0, "after": None, "woken_jobs": 1}
    ]
    assert cortex("budgets", "rm", DAY, *WHY, "--yes").code == 3
    empty = cortex("budgets", "ls")
    assert (empty.code, empty.out) == (0, "")
    assert "no budget is set: cortex budgets set" in empty.err


def test_many_budgets_come_in_pages(cortex: Cortex, life: Life) -> None:
    for tenant in "abc":
        cortex("budgets", "set", "--tenant", tenant, "--usd", "1", *WHY)
    first = cortex("budgets", "ls", "--limit", "2", "-o", "name").out.split()
    assert first == ["tenant:a:usd:run", "tenant:b:usd:run"]
    rest = cortex("budgets", "ls", "--after", first[-1], "-o", "name").out.split()
    assert rest == ["tenant:c:usd:run"]


@pytest.mark.parametrize(
    "arguments, code, output",
    [
        (("set", "--usd", "1", *WHY), 2, "no budget given"),
        (("set", DAY, "--tenant", "a", "--usd", "1", *WHY), 2, "no budget given"),
        (("set", "--tenant", "a", *WHY), 2, "no amount given"),
        (("set", "--tenant", "a", "--usd", "1", "--tokens", "1", *WHY), 2, "no amount given"),
        (("set", "--tenant", "a", "--usd", "1"), 2, "--reason"),
        (("set", "--tenant", "a", "--usd", "-1", *WHY), 2, "-1 is not from 0 to"),
        (("set", "--tenant", "a", "--usd", "nan", *WHY), 2, "nan is not from 0 to"),
        (("set", "--tenant", "a", "--tokens", "1e12", *WHY), 2, "1e12 is not from 0 to"),
        (("set", "--tenant", "a", "--tokens", "1.5", *WHY), 2, "1.5 is not a whole number"),
        (("raise", "tenant:a:tokens:run", "--to", "1.5", *WHY), 2, "1.5 is not a whole number"),
        (("set", "--tenant", "a", "--usd", "1", "--reason", "x" * 501), 2, "501 characters"),
        (("set", "--tenant", "a", "--usd", "1", *WHY, "--as", "x" * 81), 2, "81 characters"),
        (("set", "moon", "--usd", "1", *WHY), 2, "'moon' is not the name of a budget"),
        (("set", "--agent", "nobody", "--usd", "1", *WHY), 3, "nobody"),
        (("set", "--job", "abcdef", "--usd", "1", *WHY), 3, "no job ends with 'abcdef'"),
        (("raise", DAY, "--to", "5", *WHY), 3, f"budget '{DAY}' does not exist"),
    ],
)
def test_invalid_budget_commands_change_nothing(
    cortex: Cortex, life: Life, arguments: tuple[str, ...], code: int, output: str
) -> None:
    ended = cortex("budgets", *arguments)
    assert output in ended.err
    assert ended.code == code
    assert listed(cortex) == {}


def test_one_token_is_written_in_the_singular(cortex: Cortex) -> None:
    cortex("budgets", "set", "--tenant", "a", "--tokens", "1", *WHY)
    terminal = cortex.on_terminal("budgets", "ls", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert "1 token " in terminal.text


@pytest.mark.parametrize("unit", ["usd", "tokens"])
def test_the_name_to_type_is_whole_on_a_narrow_terminal(
    cortex: Cortex, life: Life, unit: str
) -> None:
    job = str(life.job())
    cortex("budgets", "set", "--job", job, f"--{unit}", "2000000", *WHY)
    terminal = cortex.on_terminal("budgets", "ls", columns=80, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert f"job:{job}:{unit}:run" in terminal.text
    assert all(len(line) <= 80 for line in terminal.text.splitlines())


def test_money_is_not_limited_in_silence_where_no_price_is_known(
    cortex: Cortex, life: Life
) -> None:
    life.agent()  # its model is called claude
    prices = cortex.folder / "prices.toml"
    prices.write_text("[claude]\ninput = 1\noutput = 2\n")
    named = ("agent:researcher:usd:run", "--usd", "1")
    for arguments in (("--agent", "researcher", "--usd", "1"), named):
        ended = cortex("budgets", "set", *arguments, *WHY)
        assert ended.code == 0
        assert "model claude has no known price" in ended.err
        assert "setting prices" in ended.err
        assert "--tokens" in ended.err
        priced = cortex("budgets", "set", *arguments, *WHY, env={"CORTEX_PRICES": str(prices)})
        assert (priced.code, priced.err) == (0, "")
    assert cortex("budgets", "set", "--agent", "researcher", "--tokens", "1", *WHY).err == ""
