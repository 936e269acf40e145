"""`cortex health`: for people, and for monitors by its exit status."""

from cortex.domain.drain import Liveness
from cortex.domain.policy import CODE_WAIT_S
from cortex.store.background import alarms
from cortex.view.phrases import NOTHING
from tests.support.command_line import Cortex
from tests.support.life import Life

RUNNER = """
    INSERT INTO cortex.runner (
        name, interval_s, started_at, duration_s, items, holder, item_count, error, succeeded_at)
    VALUES ('retries', 30, cortex.now(), 0.5, 3, 'pod a', 1200, $2,
            cortex.now() - $1::float8 * interval '1 s')
"""


def test_healthy_system_exits_with_0(cortex: Cortex, life: Life) -> None:
    life.sql(RUNNER, 4.0, None)
    ended = cortex("health", "--json")
    assert ended.code == 0
    assert ended.document["word"] == "ok"
    names = [each["name"] for each in ended.document["measures"]]
    assert names == [
        *("due_jobs", "oldest_due_s", "stranded_jobs"),
        *("failure_rate", "retry_churn", "dead_letter_rate"),
        *("outbox_pending", "outbox_oldest_s", "failing_subscriptions"),
        "missed_schedules",
    ]
    assert ended.document["measures"][1] == {
        "name": "oldest_due_s",
        "unit": "seconds",
        "value": 0.0,
        "among": None,
        "warn_over": 60,
        "bad_over": 600,
        "word": "ok",
    }
    (runner,) = ended.document["runners"]
    assert (runner["name"], runner["word"], runner["items"]) == ("retries", "ok", 3)
    assert cortex("health", "-o", "name").out == "ok\n"


def test_warning_exits_with_0(cortex: Cortex, life: Life) -> None:
    life.type()
    life.failed()
    ended = cortex("health")
    assert ended.code == 0
    assert f"ok    oldest due job    {NOTHING}  " in ended.out
    assert "warn  dead-letter rate  100 % of 1 ended jobs" in ended.out
    assert "warn: dead-letter rate" in ended.out.splitlines()


def test_bad_runner_exits_with_8(cortex: Cortex, life: Life) -> None:
    life.sql(RUNNER, 400.0, "it broke")
    ended = cortex("health")
    assert ended.code == 8
    lines = ended.out.splitlines()
    assert "bad   retries  failed: it broke  bad after 2m 30s without success" in lines
    assert "bad: runner retries" in lines
    assert cortex("health", "-o", "name").out == "bad\n"


def test_types_that_wait_for_code_are_named_with_the_way_out(cortex: Cortex, life: Life) -> None:
    life.pod("a", "served", liveness=Liveness.HEARTBEAT)
    for number in range(4):
        life.type(f"gone-{number}")
        life.job(f"gone-{number}")
    life.job("gone-2")
    life.call(alarms.check, code_wait_s=CODE_WAIT_S)
    ended = cortex("health")
    (line,) = (line for line in ended.out.splitlines() if line.startswith("warn  code"))
    text = "5 jobs wait for code that no pod has: gone-2, gone-0, gone-1 and 1 more"
    assert text in line
    assert "cortex jobs ls status:code" in line
    assert cortex("health", "--json").document["stranded_types"][0] == "gone-2"


def test_health_has_no_columns(cortex: Cortex) -> None:
    assert cortex("health", "--columns", "name").code == 2


def test_health_fails_without_a_database(cortex_nowhere: Cortex) -> None:
    assert cortex_nowhere("health", "--dsn", "postgresql://127.0.0.1:1/none").code == 1
