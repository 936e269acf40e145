"""`cortex schedules`: files with their errors, lists, previews, and changes by people."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cortex.store import facts
from cortex.store.background.schedule_ticks import fire_due
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import stop_clock
from tests.support.servers.postgres import sql

WHY = ("--reason", "a test")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DIGEST = """
name: digest
cron: "0 3 * * *"
tz: Europe/Berlin
job: digest
arguments: {urls: [a, b]}
backfill: 6h
overlap: queue
jitter: 60
instant_as: day
"""


@pytest.fixture
def cluster(life: Life) -> Life:
    sql(life.dsn, "DELETE FROM cortex.schedule")
    stop_clock(life.dsn, NOON)
    return life


def listed(cortex: Cortex) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in cortex("schedules", "ls", "--json").document["schedules"]}


def test_schedules_are_applied_listed_and_removed(cortex: Cortex, cluster: Life) -> None:
    done = cortex("schedules", "apply", "-", *WHY, "--as", "ana", "--json", stdin=DIGEST)
    (change,) = done.document["schedules"]
    assert (change["name"], change["change"]) == ("digest", "created")
    assert change["next_at"] == "2026-06-02T01:00:00.000Z"
    assert "no living pod runs digest; its jobs will wait" in done.err
    again = cortex("schedules", "apply", "-", "--json", stdin=DIGEST)
    assert again.document["schedules"][0]["change"] == "unchanged"
    row = listed(cortex)["digest"]
    assert (row["state"], row["cron"], row["zone"]) == ("unserved", "0 3 * * *", "Europe/Berlin")
    assert (row["arguments"], row["overlap"]) == ({"urls": ["a", "b"]}, "queue")
    assert (row["backfill_s"], row["jitter_s"], row["instant_as"]) == (21600, 60, "day")
    assert (row["changed_by"], row["reason"], row["origin"]) == (me("ana"), "a test", "file")
    gone = cortex("schedules", "rm", "digest", *WHY, "--yes", "--json")
    assert gone.document["name"] == "digest"
    assert listed(cortex) == {}
    missing = cortex("schedules", "show", "digest", "--json")
    assert (missing.code, missing.error["hint"]) == (3, "list them: cortex schedules ls")
    output = cluster.call(facts.page, types=["lifecycle"], since_s=60, source="schedule:digest")
    assert [fact.subtype for fact in output] == ["schedule_removed", "schedule_applied"]


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("cron: 0 0 31 2 *", 2, "cron '0 0 31 2 *' never fires"),
        ("cron: '61 * * * *'", 2, "cron '61 * * * *': minute '61' is not valid"),
        ("cron: '* * * *'", 2, "cron '* * * *' has 4 of 5 fields"),
        ("cron: 0 3 * * *\ntz: Europe/Berln", 3, "tz 'Europe/Berln' is not a time zone"),
        ("cron: 0 3 * * *\nbackfill: 6 hours", 3, "backfill '6 hours' is not a time"),
        ("cron: 0 3 * * *\nbackfill: 400d", 3, "backfill '400d' is outside 0 to 366d"),
        ("cron: 0 3 * * *\noverlap: wait", 3, "overlap 'wait' is none of skip, queue"),
        ("cron: '* * * * *'\njitter: 90", 3, "jitter 90 s is longer than the 60 s"),
        ("cron: 0 3 * * *\njob: bulk", 3, "job 'bulk' is not submitted by hand"),
        ("cron: 0 3 * * *\nagent: nobody", 3, "agent 'nobody' is of no use to job type 'x'"),
        ("cron: 0 3 * * *\nbackfil: 6h", 3, "backfil"),
        ("cron: 5", 2, "cron must be text, got 5"),
    ],
)  # fmt: skip
def test_a_bad_file_names_file_line_field_and_value(
    cortex: Cortex, cluster: Life, text: str, line: int, message: str
) -> None:
    job = "" if "job:" in text else "\njob: x"
    (cortex.folder / "s.yaml").write_text(f"name: s\n{text}{job}\n")
    done = cortex("schedules", "apply", "s.yaml")
    assert done.code == 2
    assert f"s.yaml:{line}: {message}" in done.err
    assert listed(cortex) == {}


def test_unknown_agent_is_refused_and_nothing_is_applied(cortex: Cortex, cluster: Life) -> None:
    files = DIGEST + '---\nname: z\ncron: "* * * * *"\nagent: nobody\narguments: {prompt: x}\n'
    done = cortex("schedules", "apply", "-", stdin=files)
    assert done.code == 3
    assert "schedule 'z': agent 'nobody' does not exist" in done.err
    assert listed(cortex) == {}


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ("{}", "schedule 's': payload of 'http_request' lacks url"),
        ("{url: 5}", "schedule 's': payload.url must be text, got 5"),
    ],
)
def test_arguments_that_a_built_in_type_refuses_are_not_applied(
    cortex: Cortex, cluster: Life, arguments: str, problem: str
) -> None:
    text = f'name: s\ncron: "0 3 * * *"\njob: http_request\narguments: {arguments}\n'
    done = cortex("schedules", "apply", "-", stdin=text)
    assert (done.code, problem in done.err) == (2, True)
    assert listed(cortex) == {}
    fine = text.replace(arguments, "{url: 'https://example.org'}")
    assert cortex("schedules", "apply", "-", stdin=fine).code == 0


def test_a_flow_that_is_unknown_or_lacks_an_input_is_not_scheduled(
    cortex: Cortex, cluster: Life
) -> None:
    text = 'name: s\ncron: "0 3 * * *"\njob: run_flow\narguments: {flow: f}\n'
    done = cortex("schedules", "apply", "-", stdin=text)
    assert (done.code, "schedule 's': flow 'f' does not exist" in done.err) == (3, True)
    flow = "name: f\ninputs: {day: {required: true}}\nsteps: [{name: a, uses: approve}]\n"
    assert cortex("flows", "apply", "-", stdin=flow).code == 0
    done = cortex("schedules", "apply", "-", stdin=text)
    assert (done.code, "schedule 's': flow 'f' lacks input 'day'" in done.err) == (2, True)
    assert listed(cortex) == {}


def test_the_same_name_twice_is_refused(cortex: Cortex, cluster: Life) -> None:
    done = cortex("schedules", "apply", "-", stdin=f"{DIGEST}---\n{DIGEST}")
    assert done.code == 2
    assert "name 'digest' is taken by a schedule further up" in done.err


def test_a_preview_follows_daylight_saving_and_past_runs(cortex: Cortex, cluster: Life) -> None:
    stop_clock(cluster.dsn, datetime(2026, 10, 24, 0, 30, tzinfo=UTC))
    text = 'name: s\ncron: "30 2 * * *"\ntz: Europe/Berlin\njob: digest\n'
    cortex("schedules", "apply", "-", stdin=text)
    document = cortex("schedules", "preview", "s", "--for", "3d", "--json").document
    assert [each["local"] for each in document["instants"]] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    assert (document["runs"], document["usd"], document["past_runs"]) == (2, None, 0)
    back = cortex("schedules", "preview", "s", "--backfill", "2d", "--json").document
    assert [each["local"] for each in back["instants"]] == [
        "2026-10-23T02:30:00+02:00",
        "2026-10-24T02:30:00+02:00",
    ]
    cluster.type()
    pod = cluster.pod()
    stop_clock(cluster.dsn, datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    cluster.call(fire_due, limit=9)
    claim = cluster.claim(pod)
    cluster.step(pod, claim, 1, "think", is_paid=True)
    sql(
        cluster.dsn,
        "INSERT INTO cortex.fact (type, subtype, job_id, amount, currency) "
        "VALUES ('cost', 'model_call', $1, 0.25, 'USD')",
        claim.lease.job_id,
    )
    cluster.finish(pod, claim)
    page = cortex("schedules", "preview", "s", "--for", "4d").out
    assert "Mon 2026-10-26 02:30 CET" in page
    assert "3 runs; about 0ms, $0.7500, by the last 1 (1 completed)" in page


def test_a_person_pauses_resumes_and_triggers(cortex: Cortex, cluster: Life) -> None:
    cortex("schedules", "apply", "-", stdin=DIGEST)
    assert cortex("schedules", "pause", "digest").code == 2
    assert cortex("schedules", "pause", "digest", "--reason", "deploy", "--as", "li").code == 0
    row = listed(cortex)["digest"]
    assert (row["state"], row["paused_by"], row["pause_reason"]) == ("paused", me("li"), "deploy")
    again = cortex("schedules", "pause", "digest", *WHY)
    assert (again.code, "is paused already" in again.err) == (5, True)
    job_id = cortex("schedules", "trigger", "digest", *WHY, "-o", "name").out.strip()
    shown = cortex("jobs", "show", job_id, "--json").document
    assert shown["job"]["submitted_by"] == "schedule:digest"
    assert shown["job"]["schedule"] == "digest"
    assert shown["job"]["scheduled_for"].startswith("2026-06-01T12:00:00")
    assert "digest, for 2026-06-01T12:00:00Z" in cortex("jobs", "show", job_id).out
    assert cortex("schedules", "resume", "digest", "--json").code == 0
    assert cortex("schedules", "resume", "digest").code == 5
    page = cortex("schedules", "show", "digest").out
    assert "pending (triggered)" in page
    assert "queue: runs one job after another" in page
    assert "0 3 * * *  Europe/Berlin" in page


def test_a_repeated_trigger_with_one_key_submits_once(cortex: Cortex, cluster: Life) -> None:
    cortex("schedules", "apply", "-", stdin=DIGEST)
    ids = {
        cortex("schedules", "trigger", "digest", *WHY, "--idempotency-key", "k", "-o", "name").out
        for _ in range(2)
    }
    assert len(ids) == 1
    assert len(sql(cluster.dsn, "SELECT FROM cortex.job")) == 1


def test_built_in_schedules_cannot_be_removed_or_replaced(cortex: Cortex, life: Life) -> None:
    assert set(listed(cortex)) == {"sweep_zombies", "expire_approvals"}
    gone = cortex("schedules", "rm", "sweep_zombies", *WHY, "--yes")
    assert (gone.code, "is built in" in gone.err) == (5, True)
    text = 'name: sweep_zombies\ncron: "0 3 * * *"\njob: x\n'
    assert cortex("schedules", "apply", "-", stdin=text).code == 5


def test_schedules_ls_shows_its_columns_on_a_terminal(cortex: Cortex, cluster: Life) -> None:
    cortex("schedules", "apply", "-", stdin=DIGEST)
    stop_clock(cluster.dsn, NOON + timedelta(days=1))
    cluster.call(fire_due, limit=9)
    terminal = cortex.on_terminal("schedules", "ls", columns=130, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    heads, row = (" ".join(line.split()) for line in terminal.text.splitlines()[:2])
    assert heads == "schedule state cron zone runs next last"
    assert row.startswith("digest no living pod runs digest 0 3 * * * Europe/Berlin digest in 13h")


def test_empty_list_of_schedules_suggests_apply(cortex: Cortex, cluster: Life) -> None:
    empty = cortex("schedules", "ls")
    assert (empty.code, empty.out) == (0, "")
    assert "no schedule exists: cortex schedules apply FILE" in empty.err
