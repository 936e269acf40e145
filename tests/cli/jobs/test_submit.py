import json
from uuid import UUID

import pytest

from cortex.domain.canonical import DEPTH_MAX
from cortex.domain.drain import Liveness
from cortex.durable.codec import PAYLOAD_BYTES_MAX
from cortex.durable.registry import job
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import Life
from tests.support.people import me

APP = '''
from cortex.durable.context import Context
from cortex.durable.registry import job

@job("shop")
async def shop(ctx: Context, item: str, count: int = 1, note: str | None = None) -> None:
    """Buy something."""
'''


@pytest.fixture
def app(cortex: Cortex) -> str:
    (cortex.folder / "shop.py").write_text(APP)
    return "shop.py"


def payload_of(cortex: Cortex, printed: str) -> object:
    return cortex("jobs", "show", printed.strip(), "--json").document["job"]["payload"]


def test_submit_prints_only_the_id(cortex: Cortex, life: Life) -> None:
    life.type()
    ended = cortex("jobs", "submit", "digest", "--payload", '{"urls": ["a"]}')
    assert ended.code == 0
    job_id = UUID(ended.out.strip())
    assert job_id.version == 7
    assert ended.err == "no ready pod runs 'digest' yet: cortex up\n"
    assert payload_of(cortex, ended.out) == {"urls": ["a"]}


@pytest.mark.parametrize("key", [(), ("--idempotency-key", "k")])
def test_the_reason_is_recorded_and_shown(cortex: Cortex, life: Life, key: tuple[str, ...]) -> None:
    life.type()
    submit = ("jobs", "submit", "digest", "--as", "ana", "--reason", "asked by finance", *key)
    job_id = cortex(*submit).out.strip()
    if key:
        assert cortex(*submit).out.strip() == job_id
    facts = life.sql("SELECT subtype, job_id, data::text AS data FROM cortex.fact")
    assert [(row["subtype"], str(row["job_id"])) for row in facts] == [("job_submitted", job_id)]
    assert json.loads(facts[0]["data"]) == {"by": me("ana"), "reason": "asked by finance"}
    assert f"by {me('ana')}: asked by finance" in cortex("jobs", "show", job_id).out


def test_without_a_reason_a_submission_is_in_its_history_alone(cortex: Cortex, life: Life) -> None:
    life.type()
    assert cortex("jobs", "submit", "digest").code == 0
    assert life.sql("SELECT FROM cortex.fact") == []


def test_submission_with_a_ready_pod_prints_no_hint(cortex: Cortex, life: Life) -> None:
    life.type()
    life.pod(liveness=Liveness.HEARTBEAT)
    assert cortex("jobs", "submit", "digest").err == ""
    shown = cortex("jobs", "submit", "digest", "--json").document
    assert shown["job"].keys() == {"id", "status", "is_new"}


def test_everything_can_be_set(cortex: Cortex, life: Life) -> None:
    life.type()
    life.agent()
    options = "--agent researcher --queue q --priority 7 --delay 3600 --timeout 60"
    ended = cortex("jobs", "submit", "digest", *options.split())
    job = cortex("jobs", "show", ended.out.strip(), "--json").document["job"]
    assert job["agent"] == "researcher"
    assert (job["queue_name"], job["priority"], job["timeout_s"]) == ("q", 7, 60)
    assert job["run_at"] > job["created_at"]


def test_a_key_replaces_the_waiting_job(cortex: Cortex, life: Life) -> None:
    life.type()
    first = cortex("jobs", "submit", "digest", "--key", "k").out.strip()
    second = cortex("jobs", "submit", "digest", "--key", "k").out.strip()
    states = {row["id"]: row["status"] for row in cortex("jobs", "ls", "--json").document["jobs"]}
    assert states == {first: "CANCELLED", second: "PENDING"}


def test_payloads_from_files_and_stdin(cortex: Cortex, life: Life) -> None:
    life.type()
    (cortex.folder / "in.json").write_text('{"from": "file"}')
    file = cortex("jobs", "submit", "digest", "--payload", "@in.json")
    stdin = cortex("jobs", "submit", "digest", "--payload", "-", stdin='{"from": "stdin"}')
    assert payload_of(cortex, file.out) == {"from": "file"}
    assert payload_of(cortex, stdin.out) == {"from": "stdin"}


def test_arguments_override_the_payload_with_the_handlers_types(cortex: Cortex, app: str) -> None:
    arguments = ["--payload", '{"item": "x", "count": 2}', "--arg", "item=007", "--arg", "count=3"]
    ended = cortex("jobs", "submit", "shop", "--app", app, *arguments, "--arg", "note=a=b")
    assert payload_of(cortex, ended.out) == {"item": "007", "count": 3, "note": "a=b"}


def test_arguments_of_an_unknown_handler_are_json_where_they_can(
    cortex: Cortex, life: Life
) -> None:
    life.type()
    given = ["--arg", "n=3", "--arg", "t=true", "--arg", "s=so it is", "--arg", "l=[1]"]
    ended = cortex("jobs", "submit", "digest", *given)
    assert payload_of(cortex, ended.out) == {"n": 3, "t": True, "s": "so it is", "l": [1]}
    ended = cortex("submit", "digest", "n=3", "s=so it is", "--arg", "t=true")
    assert payload_of(cortex, ended.out) == {"n": 3, "t": True, "s": "so it is"}


@pytest.mark.parametrize(
    "payload, output",
    [
        ("[1]", "must be a JSON object, not list"),
        ("{", "payload is not JSON"),
        ('{"a": NaN}', "payload is not JSON"),
        ('{"a": 1e999}', "payload is not JSON"),
        ('{"a": "\\u0000"}', "payload.a holds a NUL character"),
        ('{"a": "\\ud800"}', "payload is not JSON"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "must be a JSON object"),
        (
            '{"a": ' + "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1) + "}",
            f"nested deeper than {DEPTH_MAX} levels",
        ),
        ("[" * 5000, "payload is not JSON"),
        (json.dumps({"a": "x" * PAYLOAD_BYTES_MAX}), "larger than 262,144 bytes"),
        (" " * 10_000_000, "larger than 262,144 bytes"),
        (b"\xff\xfe", "payload is not JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unstorable_payload_is_refused(
    cortex: Cortex, life: Life, payload: str | bytes, output: str
) -> None:
    life.type()
    raw = payload.encode() if isinstance(payload, str) else payload
    (cortex.folder / "in.json").write_bytes(raw)
    for source, stdin in (("@in.json", b""), ("-", raw)):
        ended = cortex("jobs", "submit", "digest", "--payload", source, "--json", stdin=stdin)
        assert ended.code == 2
        assert ended.out == ""
        assert ended.error["code"] == "invalid_value"
        assert output in ended.error["message"]
    assert life.sql("SELECT FROM cortex.job") == []


@pytest.mark.parametrize(
    "arguments, message, hint",
    [
        ("--payload @none.json", "cannot read the payload from none.json: No such file", None),
        ("--payload @.", "cannot read the payload from .: Is a directory", None),
        (
            "--payload {a:1}",
            "payload is not JSON",
            """quote it for the shell: --payload '{"name": "value"}', or use name=value\n""",
        ),
        ("--payload shop.py", "payload is not JSON", "to read a file: --payload @shop.py"),
        ("--arg item", "argument 'item' is not NAME=VALUE", "such as count=3"),
        ("--arg count=3", "payload of 'shop' lacks item", None),
        ("--arg item=x --arg cuont=3", "has an unknown key 'cuont'", "did you mean 'count'?"),
        ("--arg item=x --arg count=many", "payload.count", None),
        ("--arg item=x --priority 40000", "invalid value for '--priority'", "see: "),
        ("--arg item=x --delay -1", "invalid value for '--delay'", "see: "),
        ("--arg item=x --delay nan", "invalid value for '--delay'", "see: "),
        ("--arg item=x --delay inf", "invalid value for '--delay'", "see: "),
    ],
)
def test_wrong_calls_name_the_place(  # noqa: PLR0917 -- pytest passes them by name
    cortex: Cortex, app: str, life: Life, arguments: str, message: str, hint: str | None
) -> None:
    ended = cortex("jobs", "submit", "shop", "--app", app, *arguments.split())
    assert ended.code == 2
    assert message in ended.err
    if hint:
        assert f"hint: {hint}" in ended.err
    assert life.sql("SELECT FROM cortex.job") == []


def test_payload_that_a_built_in_type_refuses_is_not_submitted(cortex: Cortex, life: Life) -> None:
    ended = cortex("jobs", "submit", "http_request", "--arg", "url=5")
    assert (ended.code, life.sql("SELECT FROM cortex.job")) == (2, [])
    assert "error: payload of 'http_request': url '5' is not a URL\n" in ended.err
    ended = cortex("jobs", "submit", "run_agent", "--arg", "prompt=x")
    assert (ended.code, ended.err[:37]) == (2, "error: run_agent needs an agent\nhint:")


def test_a_type_that_no_pod_has_ever_had_is_accepted_with_a_remark(
    cortex: Cortex, life: Life
) -> None:
    life.type()
    ended = cortex("jobs", "submit", "digset", "--arg", "x=1")
    remark = "no pod knows job type 'digset' (did you mean 'digest'?): cortex up\n"
    assert (ended.code, ended.err) == (0, remark)
    assert payload_of(cortex, ended.out) == {"x": 1}
    assert "(known: approval_notify, bulk, digest, " in cortex("jobs", "submit", "x").err


@job("shop")
async def old_shop(ctx: object, item: str, count: int = 1) -> None: ...


@job("shop")
async def new_shop(ctx: object, item: str, colour: str) -> None: ...


def test_a_payload_is_checked_by_the_schemas_of_ready_pods(cortex: Cortex, life: Life) -> None:
    life.type("shop")
    old = life.pod("old", "shop", code="v1", takes=old_shop, liveness=Liveness.HEARTBEAT)
    life.pod("dead", "shop", code="v0", takes=new_shop)  # no session holds its lock

    def submit(*arguments: str) -> str:
        return cortex("jobs", "submit", "shop", *arguments).err

    refused = submit("--arg", "cuont=3", "--arg", "colour=red", "--arg", "count=many")
    assert refused == (
        "error: payload of 'shop' lacks item; has unknown keys 'cuont', 'colour'; "
        'payload.count must be a whole number, got "many"\n'
        "hint: did you mean 'count'?\n"
    )
    assert life.sql("SELECT FROM cortex.job") == []
    numbers = cortex("jobs", "submit", "shop", "--arg", "item=007", "--arg", "count=3")
    assert payload_of(cortex, numbers.out) == {"item": "007", "count": 3}
    life.pod("new", "shop", code="v2", takes=new_shop, liveness=Liveness.HEARTBEAT)
    assert submit("--arg", "item=x", "--arg", "colour=red") == ""
    assert "code v1 of 'shop' lacks item" in submit("--arg", "count=3")
    (shown,) = (
        row for row in cortex("jobs", "types", "--json").document["types"] if row["type"] == "shop"
    )
    assert [each["version"] for each in shown["codes"]] == ["v2", "v0", "v1"]
    assert "item, colour (code v2; others: v1)" in cortex("jobs", "types").out
    life.sql("UPDATE cortex.pod SET state = 'STOPPED', ended_at = cortex.now() WHERE id <> $1", old)
    life.sql("UPDATE cortex.pod SET heartbeat_at = cortex.now() - interval '1 day'")
    assert submit("--arg", "x=1") == "no ready pod runs 'shop' yet: cortex up\n"


def test_an_unknown_agent_is_not_found(cortex: Cortex, life: Life) -> None:
    life.type()
    ended = cortex("jobs", "submit", "digest", "--agent", "nobody")
    assert ended.code == 3
    assert 'agent "nobody" does not exist' in ended.err


def test_waiting_ends_as_the_job_does(cortex: Cortex, life: Life) -> None:
    life.type()
    pod = life.pod()
    waiting = cortex.start("jobs", "submit", "digest", "--wait")
    assert waiting.stdout is not None
    assert UUID(waiting.stdout.readline().strip()).version == 7
    life.finish(pod, life.claim(pod), error="it broke")
    out, err = waiting.communicate(timeout=WITHIN_S)
    assert waiting.returncode == 6
    assert out == ""
    assert "✗ fail" in err
    assert "it broke" in err


@pytest.mark.parametrize(
    "job_type, limit_s, app_text",
    [
        ("digest", 5400, None),  # as pods registered it
        ("run_agent", 5400, None),
        ("shop", 15, APP.replace('@job("shop")', '@job("shop", timeout=10)')),
    ],
)
def test_a_time_out_above_the_hard_limit_is_refused(
    cortex: Cortex, life: Life, job_type: str, limit_s: int, app_text: str | None
) -> None:
    life.type()
    life.agent()
    arguments = ["--agent", "researcher", "--arg", "prompt=x"] if job_type == "run_agent" else []
    if app_text is not None:
        (cortex.folder / "app.py").write_text(app_text)
        arguments = ["--app", "app.py", "--arg", "item=x"]
    given = ("jobs", "submit", job_type, *arguments, "--timeout")
    refused = cortex(*given, str(limit_s + 1))
    assert refused.code == 2
    assert f"--timeout {limit_s + 1} is above the hard limit of '{job_type}'" in refused.err
    assert f"{limit_s} seconds" in refused.err
    assert life.sql("SELECT FROM cortex.job") == []
    assert cortex(*given, str(limit_s)).code == 0


def test_tags_are_given_shown_and_found(cortex: Cortex, life: Life) -> None:
    life.type()
    job_id = cortex("jobs", "submit", "digest", "--tag", "eu", "--tag", "big").out.strip()
    assert cortex("jobs", "show", job_id, "--json").document["job"]["tags"] == ["big", "eu"]
    rows = cortex("jobs", "ls", "--tag", "eu", "--json").document["jobs"]
    assert [(row["id"], row["tags"]) for row in rows] == [(job_id, ["big", "eu"])]
    assert cortex("jobs", "ls", "--tag", "us", "--json").document["jobs"] == []


def test_a_job_continues_the_trace_of_its_option_or_of_the_environment(
    cortex: Cortex, life: Life
) -> None:
    life.type()
    first, second = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ab")

    def trace_of(*options: str, env: dict[str, str]) -> str:
        job_id = cortex("jobs", "submit", "digest", *options, env=env).out.strip()
        trace_id: str = cortex("jobs", "show", job_id, "--json").document["job"]["trace_id"]
        return trace_id

    assert trace_of("--traceparent", first, env={"TRACEPARENT": second}) == "a" * 32
    assert trace_of(env={"TRACEPARENT": second}) == "b" * 32
    job_id = cortex("jobs", "submit", "digest", env={"TRACEPARENT": "00-x"}).out.strip()
    shown = cortex("jobs", "show", job_id).out
    assert job_id.replace("-", "") in shown  # its own: a broken one of the environment is ignored
    refused = cortex("jobs", "submit", "digest", "--traceparent", "00-x")
    assert (refused.code, "--traceparent: '00-x' is not a traceparent" in refused.err) == (2, True)


def test_each_line_of_a_file_is_a_job(cortex: Cortex, life: Life, app: str) -> None:
    life.type("shop")
    lines = b'{"item": "tea"}\n\n{"item": "milk", "count": 2}\n'
    (cortex.folder / "jobs.jsonl").write_bytes(lines)
    submit = ("jobs", "submit", "shop", "--app", app, "--arg", "note=now", "--tag", "bulk")
    key = ("--idempotency-key", "import-8812", "-o", "name")
    ids = cortex(*submit, "--jsonl", "jobs.jsonl", *key).out.split()
    assert cortex(*submit, "--jsonl", "jobs.jsonl", *key).out.split() == ids
    assert [payload_of(cortex, each) for each in ids] == [
        {"item": "tea", "note": "now"},
        {"item": "milk", "count": 2, "note": "now"},
    ]
    listed = cortex(*submit, "--jsonl", "-", "--json", stdin=lines).document["jobs"]
    assert [each["status"] for each in listed] == ["PENDING", "PENDING"]
    assert len(cortex("jobs", "ls", "tag:bulk", "-o", "name").out.split()) == 4
    for given, *options, message in (
        (b'{"item": "tea"}\n[1]', "line 2: payload must be a JSON object"),
        (b'\n{"item": "tea"}\n\n[1]', "line 4: payload must be a JSON object"),
        (b'{"item": "tea"}\n\n{"item": 3}', "line 3: payload.item must be text"),
        (b"", "- has 0 lines, not 1 to 20,000"),
        (lines, "--key", "today", "--jsonl and --key exclude each other"),
        (lines, "--payload", "{}", "--jsonl and --payload exclude each other"),
    ):
        ended = cortex(*submit, "--jsonl", "-", *map(str, options), stdin=given)
        assert ended.code == 2
        assert str(message) in ended.err
    assert len(cortex("jobs", "ls", "tag:bulk", "-o", "name").out.split()) == 4
