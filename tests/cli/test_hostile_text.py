"""Nothing that a job, an agent, a model, a tool or a person wrote acts on the reader's terminal.

Each command runs on a record full of escape sequences, which got there the way they do in life.
"""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click
import pytest

from cortex.cli import target
from cortex.cli.main import cli
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.hostile import HOSTILE, LINES, PIECES, documents, treacherous
from tests.support.in_process import Ended, InProcess
from tests.support.life import Life
from tests.support.pods import Pods, first_line
from tests.support.records.rows import submit, until_jobs, until_status
from tests.support.servers.postgres import SharedPostgres, sql
from tests.support.servers.scripted_model import program, scripted_model

APP = "tests.support.apps.hostile_app"
SPEAKS = "speaks"
WHY = ("--reason", LINES, "--as", HOSTILE)
FAILED_COUNT = 24
WAITING_COUNT = 8
ASKED_COUNT = 12
DOUBTED_COUNT = 8

TRIED = ("--tenant", HOSTILE, "--limit", "2", "--dry-run")

Way = Callable[["Record"], list[str]]


@attrs.define
class Record:
    """A database full of hostile text; each job that a command uses up is given once."""

    cortex: InProcess
    talked: str
    """A job whose agent, model and tools produced the text."""
    spoke: str
    hung: str
    """One whose step timed out."""
    failed: list[str]
    waiting: list[str]
    """Jobs that wait for a retry."""
    approvals: list[str]
    effects: list[str]
    """Effects with an unknown outcome."""


READS: dict[str, list[Way]] = {
    "jobs ls": [lambda _: [], lambda _: ["--status", "all"], lambda _: ["--type", SPEAKS]],
    "jobs show": [lambda r: [r.talked], lambda r: [r.spoke], lambda r: [r.failed[0]]],
    "jobs watch": [lambda r: [r.talked], lambda r: [r.spoke], lambda r: [r.failed[0]]],
    "jobs wait": [lambda r: [r.talked], lambda r: [r.spoke, r.failed[0]]],
    "jobs state": [lambda r: [r.spoke]],
    "jobs tree": [lambda r: [r.spoke]],
    "jobs timeouts": [lambda r: [r.hung]],
    "jobs types": [lambda _: []],
    "why": [lambda r: [r.waiting[0]], lambda r: [r.failed[0]], lambda r: [r.talked]],
    "agents ls": [lambda _: []],
    "agents show": [lambda _: ["tester"], lambda _: [HOSTILE]],
    "pods ls": [lambda _: ["--all"]],
    "runners ls": [lambda _: []],
    "queues ls": [lambda _: []],
    "pauses": [lambda _: []],
    "patches": [lambda _: []],
    "preflight": [lambda _: ["--app", APP], lambda _: ["--app", f"no {HOSTILE}"]],
    "health": [lambda _: []],
    "doctor": [lambda _: [], lambda _: ["--dsn", HOSTILE]],
    "costs": [lambda _: [], lambda _: ["--by", "tenant"], lambda _: ["--by", "model"]],
    "logs": [lambda r: [r.spoke], lambda r: [r.spoke, "-f"], lambda _: ["--all"]],
    "facts": [lambda _: ["--limit", "500"], lambda r: ["--job", r.talked]],
    "budgets ls": [lambda _: []],
    "breakers ls": [lambda _: []],
    "dead ls": [lambda _: [], lambda _: ["--each"], lambda _: ["--type", HOSTILE]],
    "dead show": [lambda r: [r.failed[0]]],
    "people ls": [lambda _: [], lambda _: ["--after", HOSTILE]],
    "people show": [lambda _: [HOSTILE]],
    "tokens ls": [lambda _: ["--all"], lambda _: ["--name", HOSTILE]],
    "approvals ls": [lambda _: [], lambda _: ["--all"]],
    "approvals show": [lambda r: [r.approvals[0]], lambda _: [HOSTILE]],
    "effects ls": [lambda _: [], lambda _: ["--tool", HOSTILE]],
    "effects show": [lambda r: [r.effects[0]], lambda _: [HOSTILE]],
    "quotas ls": [lambda _: []],
    "flows ls": [lambda _: []],
    "flows show": [lambda _: ["hostile"], lambda _: [HOSTILE]],
    "flows graph": [lambda _: ["hostile"], lambda _: [HOSTILE]],
    "flows validate": [lambda r: [_flow_file(r)], lambda _: [f"no {HOSTILE}"]],
    "schedules ls": [lambda _: []],
    "schedules show": [lambda _: ["each-year"], lambda _: [HOSTILE]],
    "schedules preview": [lambda _: ["each-year"], lambda _: [HOSTILE]],
    "freeze status": [lambda _: []],
    "subscriptions ls": [lambda _: []],
    "subscriptions test": [lambda _: [HOSTILE]],
    "outbox ls": [lambda _: [], lambda _: ["--subscription", HOSTILE]],
    "outbox show": [lambda _: [HOSTILE]],
}
ACTS: dict[str, list[Way]] = {
    "jobs submit": [
        lambda _: [SPEAKS, "--arg", f"word={LINES}", "--tenant", HOSTILE, *WHY[2:]],
        lambda _: [SPEAKS, "--queue", HOSTILE, "--key", HOSTILE, *WHY[2:]],
        lambda _: [f"no {HOSTILE}"],
        lambda _: [SPEAKS, "--payload", LINES],
    ],
    "retention set": [
        lambda _: ["--completed", HOSTILE, "--yes", *WHY],
        lambda _: ["--completed", "30d", "--archive", f"/tmp/{HOSTILE}", "--yes", *WHY],  # noqa: S108
    ],
    "retention show": [lambda _: []],
    "retention unset": [lambda _: [*WHY]],
    "jobs cancel": [
        lambda r: [r.waiting.pop(), "--yes", *WHY],
        lambda _: [HOSTILE, "--yes", *WHY],
        lambda _: ["--filter", f'type:"no {HOSTILE}"', "--yes", *WHY],
        lambda _: ["--filter", HOSTILE, "--yes", *WHY],
    ],
    "jobs priority": [lambda _: [HOSTILE, "7", *WHY], lambda _: ["1" * 6, HOSTILE, *WHY]],
    "jobs retry": [
        lambda r: [r.failed.pop(), *WHY],
        lambda _: ["--filter", f'type:"no {HOSTILE}"', "--dry-run", *WHY],
    ],
    "jobs resume": [lambda r: [r.failed.pop(), *WHY]],
    "jobs signal": [
        lambda r: [r.waiting[0], "paid", "--data", json.dumps(LINES), *WHY[2:]],
        lambda r: [r.waiting[0], HOSTILE, *WHY[2:]],
        lambda _: [HOSTILE, HOSTILE, "--data", HOSTILE],
        lambda _: ["paid", "--key", HOSTILE],
        lambda _: [HOSTILE, "paid", "--key", HOSTILE],
    ],
    "dead retry": [
        lambda r: [r.failed.pop(), "--yes", *WHY],
        lambda _: ["--type", HOSTILE, "--dry-run", *WHY],
        lambda _: [*TRIED, *WHY],
    ],
    "dead discard": [lambda r: [r.failed.pop(), "--yes", *WHY], lambda _: [*TRIED, *WHY]],
    "agents apply": [lambda r: [_agent_file(r)], lambda _: [f"no {HOSTILE}"]],
    "budgets set": [
        lambda _: ["--tenant", HOSTILE, "--usd", "5", *WHY],
        lambda _: [HOSTILE, "--usd", "5", *WHY],
    ],
    "budgets raise": [lambda _: [f"tenant:{HOSTILE}:usd:run", "--to", "7", *WHY]],
    "budgets rm": [lambda _: [f"tenant:{HOSTILE}:usd:run", "--yes", *WHY]],
    "pods drain": [lambda _: [HOSTILE, *WHY], lambda _: [f"pod {HOSTILE}", *WHY]],
    "pods undrain": [lambda _: [HOSTILE, *WHY], lambda _: [f"pod {HOSTILE}", *WHY]],
    "pause": [
        lambda _: [f"queue:{HOSTILE}", *WHY],
        lambda _: [f"queue:far {HOSTILE}", *WHY],
        lambda _: [f"tenant:{HOSTILE}", *WHY],
        lambda _: [HOSTILE * 50, *WHY],
    ],
    "resume": [lambda _: [f"queue:{HOSTILE}", *WHY], lambda _: [HOSTILE, *WHY]],
    "queues order": [lambda _: [HOSTILE, "strict", *WHY], lambda _: [HOSTILE, HOSTILE, *WHY]],
    "breakers open": [
        lambda _: ["tool:x", "--yes", *WHY],
        lambda _: [f"tool:{HOSTILE}", "--yes", *WHY],
    ],
    "breakers close": [
        lambda _: ["tool:x", "--yes", *WHY],
        lambda _: [f"tool:far {HOSTILE}", "--yes", *WHY],
    ],
    "tokens create": [lambda _: ["--name", HOSTILE, "--role", "viewer", *WHY[2:]]],
    "people add": [lambda _: [HOSTILE, *WHY], lambda _: ["li", "--login", HOSTILE[:60], *WHY]],
    "people disable": [lambda _: [HOSTILE, "--yes", *WHY]],
    "people enable": [lambda _: [HOSTILE, "--yes", *WHY]],
    "tokens revoke": [lambda _: [HOSTILE, "--yes", *WHY]],
    "approvals approve": [
        lambda r: [r.approvals.pop(), "--yes", *WHY],
        lambda _: [HOSTILE, "--yes", *WHY],
    ],
    "approvals deny": [lambda r: [r.approvals.pop(), *WHY], lambda _: [HOSTILE, *WHY]],
    "approvals link": [
        lambda r: [r.approvals[0], "--base-url", "http://127.0.0.1:1", *WHY[2:]],
        lambda r: [r.approvals[0], "--base-url", HOSTILE, *WHY[2:]],
    ],
    "effects resolve": [
        lambda r: [r.effects.pop(), "applied", "--result", json.dumps(LINES), "--yes", *WHY],
        lambda _: [HOSTILE, "give-up", "--yes", *WHY],
    ],
    "limits ls": [lambda _: []],
    "quotas set": [
        lambda _: [f"far-{HOSTILE}", "--limit", "1", "--per", "day", "--unit", HOSTILE[:20], *WHY],
        lambda _: ["reach_out", "--limit", "9", "--per", "day", "--of", HOSTILE, *WHY],
    ],
    "quotas caps": [lambda _: []],
    "quotas cap": [lambda _: [HOSTILE, "--jobs", "9", *WHY]],
    "quotas uncap": [lambda _: [HOSTILE, "--yes", *WHY]],
    "quotas rm": [lambda _: [HOSTILE, "--yes", *WHY]],
    "flows apply": [lambda r: [_flow_file(r), *WHY], lambda _: [f"no {HOSTILE}"]],
    "schedules apply": [lambda r: [_schedule_file(r), *WHY], lambda _: [f"no {HOSTILE}"]],
    "schedules pause": [lambda _: ["each-year", *WHY], lambda _: [HOSTILE, *WHY]],
    "schedules resume": [lambda _: ["each-year", *WHY], lambda _: [HOSTILE, *WHY]],
    "schedules trigger": [lambda _: ["each-year", *WHY], lambda _: [HOSTILE, *WHY]],
    "schedules rm": [lambda _: [HOSTILE, "--yes", *WHY]],
    "subscriptions apply": [lambda r: [_schedule_file(r), *WHY], lambda _: [f"no {HOSTILE}"]],
    "subscriptions rm": [lambda _: [HOSTILE, "--yes", *WHY]],
    "outbox retry": [lambda _: [HOSTILE, *WHY]],
    "outbox discard": [lambda _: [HOSTILE, "--yes", *WHY]],
    "freeze on": [lambda _: [*WHY]],
    "freeze off": [lambda _: [*WHY, "--yes"]],
    "agents trust": [lambda _: ["tester", "notes", *WHY, "--yes"]],
}
# They show figures and states of their own making, and nothing out of the record.
PREPARED = (
    ("breakers", "open", "tool:x", "--yes", *WHY[:2]),
    ("quotas", "set", "reach_out", "--limit", "9", "--per", "day", *WHY[:2]),
    ("tokens", "create", "--name", "ana", "--role", "viewer"),
    ("schedules", "apply", "each-year.yaml", *WHY[:2]),
    ("flows", "apply", "hostile.json", *WHY[:2]),
    ("subscriptions", "apply", "wish.json", *WHY[:2]),
    ("freeze", "on", *WHY[:2]),
)
"""For the commands that only look."""
OF_JOBS = (
    """INSERT INTO cortex.job_published (job_id, attempt, number, state, done, total, unit)
       SELECT $1, 1, 1, jsonb_build_object($3::text, $4::text), 1, 2, left($3, 40)
       WHERE $2::uuid <> $1""",
    """INSERT INTO cortex.job_child (
           lineage_id, step, ordinal, job_id, parent_id, is_detached, is_held)
       SELECT $1::uuid, $3 || left($4, 40), 0, $2::uuid, $1::uuid, false, false""",
    """UPDATE cortex.job_record SET has_children = true
       WHERE id = $1::uuid AND $2::uuid <> $1 AND $3::text <> $4::text""",
)
"""What a job has published, and its child."""
OF_TENANT = (
    """INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
       VALUES ('tenant', $1, 'usd', 'run', 5, $1, $1)""",
    "INSERT INTO cortex.tenant_cap VALUES ($1, 9, 1000000, $1, now(), $1)",
    """INSERT INTO cortex.limited_type (type, spec, holds)
       SELECT 'chore', '[]', false WHERE $1 <> ''""",
    """INSERT INTO cortex.job_limit (type, place, unit, per, key, amount)
       VALUES ('chore', 1, 'tokens', 'day', left($1, 100), 9)""",
    """INSERT INTO cortex.mcp_tool (
           agent, server, identity, tool, accepted, accepted_at, accepted_by, offered, offered_at)
       VALUES ('tester', 'notes', repeat('a', 64), left($1, 128), '{}', now(), $1,
               json_build_object('description', $1, $1, $1)::text, now())""",
)
"""Of a tenant whose name no command takes, though programs in SQL may use it."""
FOLLOWS = "approvals watch"
"""Runs until Ctrl-C, so it has a test of its own."""
SHOW_NO_TEXT = {
    "completion",
    "config show",
    "demo",
    "dev",
    "init",
    "licences",
    "mcp",  # JSON for assistants: tests/hostile/test_assistants.py
    "migrate",
    "run",  # has a test of its own, with the pod that it starts
    "scripted-model",
    "tick",
    "tui",
    "up",
    "version",
} | {
    f"bench {name}"
    for name in (
        *(
            "abuse",
            "aged",
            "approvals",
            "calls",
            "client",
            "compare",
            "growth",
            "latency",
            "outbox",
            "retries",
            "startup",
        ),
        *("statements", "steps", "streams", "takeover", "throughput", "tui"),
    )
}


def commands(group: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The path of every command there is."""
    if not isinstance(group, click.Group):
        yield " ".join(path)
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        assert inner is not None
        yield from commands(inner, (*path, name))


def test_every_command_has_a_way_to_be_run_here() -> None:
    """A new command: add to READS or ACTS how it shows as much text of the record as it can."""
    known = {*READS, *ACTS, *SHOW_NO_TEXT, FOLLOWS}
    assert set(commands()) - known == set()


def _flow_file(record: Record) -> str:
    step = {"name": HOSTILE, "uses": HOSTILE}
    file = record.cortex.folder / "wrong.json"
    file.write_text(json.dumps({"name": "wrong", "steps": [step]}))
    return str(file)


def _agent_file(record: Record) -> str:
    path = record.cortex.folder / "hostile.yaml"
    document = {"name": HOSTILE, "model": LINES, "system": LINES, LINES: LINES}
    path.write_text(json.dumps(document))
    return str(path)


def _schedule_file(record: Record) -> str:
    path = record.cortex.folder / "schedule.yaml"
    document = {"name": "s", "cron": "0 3 * * *", "job": SPEAKS, "tz": HOSTILE}
    path.write_text(json.dumps(document))
    return str(path)


def _spec(name: str, model: str) -> str:
    tools = ["speak", "break_down", "reach_out"]
    spec = {"name": name, "model": model, "system": LINES, "description": LINES, "tools": tools}
    return json.dumps(spec)


def _turns() -> list[dict[str, object]]:
    def use(name: str, **given: object) -> dict[str, object]:
        return {"name": name, "input": {"word": LINES, **given}}

    return [
        {"text": LINES, "tools": [use("speak"), use("break_down")]},
        {"text": LINES, "tools": [use(HOSTILE), use("speak", **{HOSTILE: LINES})]},
        {"text": LINES, "tools": [use("reach_out")]},
        {"text": LINES},
    ]


@pytest.fixture(scope="module")
def record(
    shared_postgres: SharedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Record]:
    folder = tmp_path_factory.mktemp("hostile")
    dsn = shared_postgres.create_migrated()
    cortex = InProcess(dsn, folder)

    def done(*arguments: str) -> Ended:
        kept = cortex(*arguments)
        assert kept.code == 0, kept.err
        return kept

    for name, model in (("tester", "scripted"), ("other", f"model {HOSTILE}")):
        (folder / f"{name}.yaml").write_text(_spec(name, model))
        done("agents", "apply", str(folder / f"{name}.yaml"), "--as", HOSTILE)
    with scripted_model() as server:
        pods = Pods(dsn, folder, dict(server.environment))
        try:
            pods.start("--app", APP)
            lived = _lived(cortex, dsn)
            with open_session(Profile(dsn=dsn)) as call:
                Life(call, dsn).pod(f"pod {HOSTILE}")
            schedule = {"name": "each-year", "cron": "0 3 1 1 *", "job": SPEAKS}
            more = {"arguments": {"word": LINES}, "tenant": HOSTILE[:50]}
            (cortex.folder / "each-year.yaml").write_text(json.dumps(schedule | more))
            wish = {"name": "s", "topic": "order.*", "channel": "log", "filter": {HOSTILE: LINES}}
            (cortex.folder / "wish.json").write_text(json.dumps({"subscriptions": [wish]}))
            step = {"name": "a", "uses": "approve", "with": {"reason": HOSTILE}}
            flow = {"name": "hostile", "description": LINES, "steps": [step]}
            (cortex.folder / "hostile.json").write_text(json.dumps(flow))
            for query in OF_TENANT:
                sql(dsn, query, HOSTILE)
            for act in PREPARED:
                done(*act, *WHY[2:])
            with one_session(dsn):
                yield lived
        finally:
            pods.close()
            shared_postgres.drop(dsn)


@contextmanager
def one_session(dsn: str) -> Iterator[None]:
    """Keep one session for all commands: hundreds of new ones cost more than what they ask."""
    with (
        open_session(Profile(dsn=dsn, connections_max=1)) as kept,
        pytest.MonkeyPatch.context() as patch,
    ):

        @contextmanager
        def opened(profile: Profile) -> Iterator[Session]:
            if profile.dsn == dsn:
                yield kept
            else:
                with open_session(profile) as other:
                    yield other

        patch.setattr(target, "open_session", opened)
        yield


def _lived(cortex: InProcess, dsn: str) -> Record:
    """Let jobs say what they have to say."""
    named = {"tenant": HOSTILE, "queue_name": f"queue {HOSTILE}"}
    refusal = {"status": 400, "error_type": HOSTILE, "message": LINES}
    talked = submit(dsn, "run_agent", {"prompt": program(*_turns())}, agent="tester", **named)
    refused = submit(dsn, "run_agent", {"prompt": program(refusal)}, agent="other", **named)
    spoke = submit(dsn, SPEAKS, {"word": LINES}, job_key=HOSTILE, **named)
    failed = [
        submit(dsn, "fails", {"how": how}, tenant=HOSTILE)
        for how in ("raised", "rejected")
        for _ in range(FAILED_COUNT // 2)
    ]
    waiting = [submit(dsn, "flaky", tenant=HOSTILE) for _ in range(WAITING_COUNT)]
    for kind, count in (("asks", ASKED_COUNT), ("doubts", DOUBTED_COUNT)):
        for _ in range(count):
            submit(dsn, kind, tenant=HOSTILE)
    hung = submit(dsn, "hangs", tenant=HOSTILE)
    until_status(dsn, hung, "RETRY")
    until_status(dsn, talked, "COMPLETED", "FAILED")
    until_status(dsn, spoke, "COMPLETED")
    until_status(dsn, refused, "FAILED")
    until_jobs(dsn, "type = 'fails' AND status = 'FAILED'", count=FAILED_COUNT)
    until_jobs(dsn, "type = 'flaky' AND status = 'RETRY'", count=WAITING_COUNT)

    until_jobs(dsn, "type = 'asks' AND status = 'WAITING_FOR_APPROVAL'", count=ASKED_COUNT)
    until_jobs(dsn, "type = 'doubts' AND status = 'WAITING_FOR_APPROVAL'", count=DOUBTED_COUNT)
    pause = "INSERT INTO cortex_worker.pause VALUES ('queue', $1, $2, now(), $2)"
    sql(dsn, pause, f"held {HOSTILE}", HOSTILE)
    broke = """
        INSERT INTO cortex.runner (name, interval_s, started_at, duration_s, items, error, holder)
        VALUES ('broken', 30, cortex.now(), 1, 0, $1, $2)
    """
    sql(dsn, broke, LINES, HOSTILE)
    for query in OF_JOBS:
        sql(dsn, query, spoke, refused, HOSTILE, LINES)

    def found(table: str) -> list[str]:
        return [str(row["id"]) for row in sql(dsn, f"SELECT id FROM cortex.{table}")]  # noqa: S608

    return Record(
        cortex=cortex,
        talked=str(talked),
        spoke=str(spoke),
        hung=str(hung),
        failed=[str(each) for each in (refused, *failed)],
        waiting=[str(each) for each in waiting],
        approvals=found("approval"),
        effects=found("effect"),
    )


MODES: dict[str, tuple[str, ...]] = {
    "redirected": (),
    "on a terminal": ("--color", "never"),
    "in colour": ("--color", "always"),
    "JSON": ("--json",),
}


def run(record: Record, command: str, way: Way, mode: str) -> Ended:
    arguments = [*command.split(), *way(record), *MODES[mode]]
    is_tty = mode in ("on a terminal", "in colour")
    return record.cortex(*arguments, is_tty=is_tty)


def wrong_with(kept: Ended, mode: str) -> list[str]:
    found = [
        *treacherous(kept.out.replace("\t", " "), has_color=mode == "in colour"),
        *treacherous(kept.err, has_color=mode == "in colour"),
    ]
    if "internal" in kept.err or "Traceback" in kept.err:
        found.append(kept.err[-400:])
    if mode == "JSON":
        try:
            documents(kept.out if kept.code == 0 else kept.err)
        except ValueError as error:
            found.append(f"not JSON: {error}: {kept.out[:200]!r} {kept.err[:200]!r}")
    return found


@pytest.mark.timeout(240)
def test_no_command_prints_hostile_text(record: Record) -> None:
    wrong: list[str] = []
    seen: dict[str, str] = {}
    existing = set(commands())
    for command, ways in {**READS, **ACTS}.items():
        if command not in existing:
            continue
        for mode in MODES:
            for number, way in enumerate(ways):
                kept = run(record, command, way, mode)
                place = f"cortex {command} ({number}, {mode}, exit {kept.code})"
                wrong += [f"{place}: {each}" for each in wrong_with(kept, mode)[:2]]
                seen[command] = seen.get(command, "") + kept.out + kept.err
    assert not wrong, "\n".join(["", *wrong[:40]])
    silent = {
        command
        for command, text in seen.items()
        if not any(mark in text for mark in ("U+202E", "\\u202e", "u001b"))
    }
    assert silent <= NOTHING_HOSTILE, "these commands showed none of it: give them more to show"


NOTHING_HOSTILE = {"jobs types", "outbox ls", "jobs retry", "freeze off", "retention unset"}
"""They return types, ids whose characters are checked, and states."""


def test_documents_hold_the_exact_text(record: Record) -> None:
    shown = record.cortex("jobs", "show", record.spoke, "--json")
    (document,) = documents(shown.out)
    job = document["job"]
    assert (job["tenant"], job["result"]) == (HOSTILE, {HOSTILE: [LINES, {HOSTILE: LINES}]})
    assert [step["key"] for step in document["steps"]] == [f"step {HOSTILE}"]


def test_followed_output_is_escaped(record: Record, tmp_path: Path) -> None:
    cortex = Cortex(tmp_path, record.cortex.dsn)
    for arguments in (["--plain"], ["--json"]):
        with cortex.start(*FOLLOWS.split(), *arguments) as process:
            assert process.stdout is not None
            line = first_line(process.stdout.buffer).decode()  # type: ignore[attr-defined]
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=WITHIN_S)
        assert any(mark in line for mark in ("U+202E", "\\u202e", "\\u001b"))
        assert not treacherous(line + rest + said)


def test_treacherous_text_is_found() -> None:
    for piece in (*PIECES.values(), "a\rb", "\t", "\x1b[31m"):
        assert treacherous(f"before {piece} after")
    assert treacherous("\x1b[31mred\x1b[0m")
    assert not treacherous("\x1b[1;31mred\x1b[0m\nü 漢 ⟦U+202E⟧", has_color=True)
    assert treacherous("\x1b[31mred\x1b[0m\x1b[2J", has_color=True)
