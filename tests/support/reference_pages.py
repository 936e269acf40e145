"""Generates docs/reference from the code: `python -m tests.support.generate reference`."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import click

from cortex.agent.tools import BUILT_IN
from cortex.cli import synonyms
from cortex.cli.examples import EXAMPLES
from cortex.cli.failures import EXIT_CODES
from cortex.cli.main import cli
from cortex.cli.options import Command
from cortex.config import Settings
from cortex.domain import breaker, errors
from cortex.domain.failure import CODES
from cortex.domain.health import THRESHOLDS
from cortex.domain.job import TRANSITIONS
from cortex.domain.policy import DEFAULT, JOB_HARD, POLICIES
from cortex.domain.retry import CALL_RETRIES
from cortex.domain.timeouts import TIMEOUTS
from cortex.http.framework.route import PUBLIC
from cortex.http.framework.shape import schema_of
from cortex.http.routes import ALL
from cortex.http_client import addresses, secret_values
from cortex.runtime.metrics.metrics_catalogue import METRICS
from cortex.runtime.tracing.environment import VARIABLES
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, Resource, Shape
from cortex.view.resources import every, shapes
from cortex.view.verbs import VERBS
from cortex_tui.key import EVERYWHERE, GROUPS, LISTS, Key
from cortex_tui.key_table import shown
from cortex_tui.keys import KEYS
from tests.support import python_reference

FOLDER: Final = Path(__file__).parent.parent.parent / "docs" / "reference"
NOTE: Final = "<!-- Generated from the code by `python -m tests.support.generate`; do not edit. -->"
SETTINGS: Final = """\
A flag wins over an environment variable (`CORTEX_SLOTS=200`), that over `cortex.toml` in the
working directory, and that over `config.toml` in the user's configuration directory.

`cortex.toml` sets only what its column permits: others may have written the files of a working
directory. A file that belongs to another user than this one or root, or that every user may write,
is refused."""
ERRORS: Final = """\
A failed command prints one line that names the thing, the value and the way out, and exits with a
code other than 0. `--json` prints `{"error": {"code", "message", "hint"}}`; `--debug` adds the
traceback. Codes are stable."""
TRACES: Final = """\
The standard variables of OpenTelemetry, as far as a pod understands them; see
[the guide](../guides/tracing.md). The first five exist as `OTEL_EXPORTER_OTLP_TRACES_…` and
`OTEL_EXPORTER_OTLP_LOGS_…`, too, which win; there the endpoint is the whole URL. A wrong value is
logged and ignored."""
REQUESTS: Final = """\
Only read from the environment of pods, of `cortex tick` and of `cortex subscriptions test`; see
[the guide](../guides/built-in-jobs.md#http_request). Without them requests reach public addresses
only, and use no secret."""
HEALTH: Final = "The thresholds of `cortex health` and `GET /v1/health`."
OTHER_WORDS: Final = """\
These do the same as a command, and take its options; `…` stands for a group. A group without a verb
lists: `cortex jobs -n 5` is `cortex jobs ls -n 5`. `ID` is an id or the end of one. Any other word
is refused with the commands that it may mean, such as `cortex jobs cancel` for `cortex stop`."""
STATES: Final = """\
Every job is in one of seven states. Lists and pages show `○ pend`, `● run`, `↻ retry`, `✓ done`,
`✗ fail` and `⊘ canc`. A job that waits for a person shows what it waits for:

- `◆ asks`: an approval;
- `? effect`: an effect with an unknown outcome;
- `$ budget`: a spent budget or quota;
- `! person`: anything else that a person has to fix, such as an account without credit.

A job that waits for a timer of its own code (`ctx.sleep`) shows `◔ sleep`,
one whose model call waits in a batch of its provider `▤ batch`, one that waits for room in a
[limit](../guides/limits.md) `≡ limit`.

A job that waits for a signal shows `◇ signal`, one that waits for its children `▷ child`, and one
that waits for code that can take it `≠ code`.

Each word is a filter, and matches what shows it: `status:effect`, `status:sleep,signal`.
`status:retry` matches jobs that are tried again after a failure, and those that a breaker holds
back; `status:appr` all that wait for a person. `status:RETRY`, in capitals, is the state as it is
stored, with all that waits in it."""
Rows = Iterable[list[str]]


def _traces() -> Rows:
    for name, meaning in VARIABLES.items():
        yield [_code(name), meaning]


def _requests() -> Rows:
    for module in (addresses, secret_values):
        yield [_code(module.SETTING), module.MEANING]


def _settings() -> Rows:
    for field in attrs.fields(Settings):
        in_project = "yes" if field.metadata["project"] else ""
        yield [_code(field.name), _shown(field.default), in_project, field.metadata["doc"]]


def _states() -> Rows:
    for state, reachable in TRANSITIONS.items():
        names = [to.value for to in TRANSITIONS if to in reachable]
        yield [_code(state.value), ", ".join(names) or "none"]


def _errors() -> Rows:
    seen = {}
    for each in _families(errors.CortexError):
        if each.__module__ == errors.__name__:
            doc = (each.__doc__ or "").strip().splitlines()[0]
            seen[each.code] = [_code(each.code), str(each.exit_code), doc]
    return seen.values()


def _exit_codes() -> Rows:
    for code, meaning in EXIT_CODES.items():
        yield [str(code), meaning]


def _policies() -> Rows:
    for name, policy in [*POLICIES.items(), ("any other", DEFAULT)]:
        backoff = policy.backoff
        figures = (policy.worker_attempts, policy.max_retries, backoff.base_s, backoff.cap_s)
        times = (backoff.multiplier, policy.timeout_s, policy.call_s, policy.connect_s)
        label = _code(name) if name in POLICIES else name
        yield [label, *(_shown(float(each)) for each in (*figures, *times))]


def _limits() -> Rows:
    yield ["a job", "by its type", f"{JOB_HARD:g} times that"]
    for limit in TIMEOUTS.values():
        yield [limit.of, _shown(limit.default_s), _shown(limit.hard_s)]
    for name, tool in sorted(BUILT_IN.items()):
        if tool.timeout_s != TIMEOUTS["tool_call"].default_s:
            hard_s = _shown(TIMEOUTS["tool_call"].hard_s)
            yield [f"tool {_code(name)}", _shown(tool.timeout_s), hard_s]


def _call_retries() -> Rows:
    for name, retry in CALL_RETRIES.items():
        figures = (retry.base_s, retry.cap_s, float(retry.attempts))
        yield [_code(name), *(_shown(each) for each in figures)]


def _classes() -> Rows:
    for code, meaning in CODES.items():
        text = meaning.message + ("; only a person can mend it" if meaning.is_escalated else "")
        yield [_code(code), meaning.cls.value, text]


def _breakers() -> Rows:
    for kind, policy in breaker.POLICIES.items():
        escalates = NOTHING if policy.escalates_after is None else str(policy.escalates_after)
        figures = [
            str(policy.opens_after),
            str(policy.volume_min or NOTHING),
            _shown(policy.open_s),
        ]
        yield [_code(f"{kind}:NAME"), *figures, str(policy.closes_after), escalates]


def _metrics() -> Rows:
    for metric in METRICS:
        labels = ", ".join(map(_code, metric.labels)) or NOTHING
        yield [_code(metric.name), metric.kind, labels, metric.help]


def _health() -> Rows:
    for name, threshold in THRESHOLDS.items():
        bad = NOTHING if threshold.bad_over is None else _shown(float(threshold.bad_over))
        yield [_code(name), threshold.unit.value, _shown(float(threshold.warn_over)), bad]


def _routes() -> Rows:
    for route in ALL:
        role = "all" if route.role is PUBLIC else str(route.role).lower()
        yield [_code(f"{route.method} {route.path}"), role, route.summary]


def _keys(group: str) -> Rows:
    for key in (each for each in KEYS if each.group == group):
        signs = " ".join(_code(shown(each).replace("|", r"\|")) for each in key.keys)
        yield [signs, _place(key), key.help, _code(key.id)]


def _place(key: Key) -> str:
    if EVERYWHERE in key.where:
        return "everywhere"
    return "lists and pages" if key.where == LISTS else ", ".join(key.where)


def _keys_of(group: str) -> Callable[[], Rows]:
    return lambda: _keys(group)


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    return " ".join([path, *command.collect_usage_pieces(context)])


def _parameters(command: click.Command) -> Rows:
    common = Command.common if isinstance(command, Command) else ()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter not in common and not parameter.hidden:
            context = click.Context(command)
            names, text = parameter.get_help_record(context) or ("", "")
            yield [_code(names.replace("|", r"\|")), text.replace("|", r"\|")]


def _leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command


def _other_words() -> Rows:
    """The aliases at the top and in groups; a group's `list` stands once for all of them."""
    seen: dict[str, list[str]] = {}
    for word, meant in cli.aliases().items():
        seen.setdefault(f"cortex {meant}", []).append(f"cortex {word}")
    for word, verbs in synonyms.VERBS.items():
        seen.setdefault(f"cortex … {verbs[0]}", []).append(f"cortex … {word}")
    for meant, words in seen.items():
        yield [", ".join(map(_code, words)), _code(meant)]


def _commands_page() -> str:
    parts = [
        "# Commands",
        NOTE,
        "`cortex COMMAND --help` prints the same. Every command takes the common options, too.",
    ]
    commands = list(_leaves(cli, "cortex"))
    parts.append(
        _table(
            "command | what it does",
            ([f"[`{path}`](#{_anchor(path)})", _first_line(each)] for path, each in commands),
        )
    )
    for path, command in commands:
        parts += [f"## {path}", f"    {_usage(command, path)}", _help_text(command)]
        parts.append("\n".join(["For example:", "", *_examples(path)]))
        rows = list(_parameters(command))
        if rows:
            parts.append(_table("option | what it does", rows))
    common = click.Command("cortex", params=list(Command.common))
    parts += [
        "## Other words",
        OTHER_WORDS,
        _table("words | the same as", _other_words()),
        "## Common options",
        _table("option | what it does", _parameters(common)),
        "## Exit codes",
        _table("exit code | meaning", _exit_codes()),
    ]
    return "\n\n".join(parts) + "\n"


def _examples(path: str) -> list[str]:
    return [f"    {line}" for line in EXAMPLES[path.removeprefix("cortex ")]]


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _first_line(command: click.Command) -> str:
    return _help_text(command).split("\n\n")[0].split("\n")[0]


def _help_text(command: click.Command) -> str:
    return inspect.cleandoc((command.help or "").replace("\b\n", ""))


def _fields(resource: Resource[Any]) -> Rows:
    """Each field of a resource; those in tables by default come first, as everywhere."""
    for each in resource.fields:
        if each.is_for_people:
            continue
        schema = schema_of(resource.kind_of(each), {})
        yield [_code(each.name), "yes" if each.is_default else "", _kind(schema), each.meaning]


def _typed(shape: Shape[Any], *, known: Iterable[Field[Any]]) -> Rows:
    names = {each.name for each in known}
    for each in shape.fields:
        if each.name not in names:
            yield [_code(each.name), _kind(schema_of(shape.kind_of(each), {})), each.meaning]


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return "object"
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
    return KINDS.get(schema.get("format", schema.get("type", "")), "any")


Section = tuple[str, str, str, Callable[[], Rows]]
"""Title, text before the table, head of the table, rows."""


def _section(shape: Shape[Any]) -> Section:
    """Return the section of what is shown of one thing: what its list does not have."""
    names = {each.name for each in shape.fields}
    lists = (each for each in every() if {field.name for field in each.fields} <= names)
    listed = next(lists, None)
    title = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in shape.name)
    if listed is None:
        return title.strip().capitalize(), shape.doc, SHAPE_HEAD, partial(_typed, shape, known=())
    doc = f"{shape.doc} It has the fields of {listed.noun}, and:"
    return title.strip().capitalize(), doc, SHAPE_HEAD, partial(_typed, shape, known=listed.fields)


def _verbs() -> Rows:
    for each in VERBS.values():
        reason = "required" if each.is_reason_required else "optional"
        asks = "yes" if each.asks else ""
        dry_run = "`--dry-run`" if each.has_dry_run else ""
        yield [_code(each.command), each.role.value, reason, asks, dry_run]


CHANGES: Final = """\
What people can do to resources, and how the command line, the HTTP API and the terminal UI ask for
it. The right is that of a token, where the HTTP API has the change; see
[HTTP API](http-api.md)."""
RESOURCES: Final = """\
Each resource has one table of fields. `cortex … ls` shows those marked in the second column, and
any of them with `--columns`; `-o json` and the HTTP API have all of them; `v` in the terminal UI
shows them for the row under the cursor. The last
sections are what `cortex … show` and the HTTP API have of one of them."""
RESOURCE_HEAD: Final = "field | in tables | type | meaning"
SHAPE_HEAD: Final = "field | type | meaning"
KINDS: Final = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
    "uuid": "id",
    "date-time": "instant",
    "date": "date",
}

PAGES: Final[dict[str, tuple[str, str, tuple[Section, ...]]]] = {
    "settings": (
        "Settings",
        SETTINGS,
        (
            ("", "", "setting | default | in cortex.toml | meaning", _settings),
            ("Requests", REQUESTS, "environment variable | meaning", _requests),
            ("Traces", TRACES, "environment variable | meaning", _traces),
        ),
    ),
    "http-api": (
        "HTTP API",
        "See [the guide](../guides/http.md). `GET /v1/openapi.json` describes every body.",
        (("", "", "route | role | what it does", _routes),),
    ),
    "resources": (
        "Resources",
        RESOURCES,
        tuple(
            (
                each.noun.replace("_", " ").capitalize(),
                each.doc,
                RESOURCE_HEAD,
                partial(_fields, each),
            )
            for each in every()
        )
        + tuple(_section(each) for each in shapes() if not isinstance(each, Resource)),
    ),
    "changes": (
        "Changes",
        CHANGES,
        (("", "", "command | right in the HTTP API | reason | asks | dry run", _verbs),),
    ),
    "metrics": (
        "Metrics",
        "See [the guide](../guides/monitoring.md) for alerts and a dashboard.",
        (
            ("", "", "metric | type | labels | meaning", _metrics),
            ("Health", HEALTH, "figure | unit | warn over | bad over", _health),
        ),
    ),
    "errors": (
        "Errors",
        ERRORS,
        (
            ("Error codes", "", "code | exit | meaning", _errors),
            ("Exit codes", "", "exit code | meaning", _exit_codes),
            (
                "Failures of jobs",
                "The class decides what happens next: see [failures](../guides/failures.md).",
                "code | class | meaning",
                _classes,
            ),
        ),
    ),
    "policies": (
        "Policies",
        "What applies unless the job's code, its agent or its submission says otherwise.",
        (
            (
                "Job types",
                "",
                "type | attempts | retries | base s | cap s | times | job s | call s | connect s",
                _policies,
            ),
            ("Retries of one call", "", "urgency | base s | cap s | attempts", _call_retries),
            (
                "Time limits",
                "An inner limit is capped by what is left of the outer one.",
                "limit of | default s | at most s",
                _limits,
            ),
            (
                "Circuit breakers",
                "",
                "breaker | opens after | of at least | open s | closes after | escalates after",
                _breakers,
            ),
        ),
    ),
    "states": (
        "States",
        STATES,
        (("", "", "state | next states", _states),),
    ),
    "keys": (
        "Keys of the terminal UI",
        "`?` shows the keys of the current screen; `keys.toml` assigns other keys to an id.",
        tuple((group, "", "keys | where | what they do | id", _keys_of(group)) for group in GROUPS),
    ),
}


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with the text that it must have."""
    yield python_reference.PAGE, python_reference.page(NOTE)
    yield FOLDER / "commands.md", _commands_page()
    for name, (title, text, sections) in PAGES.items():
        parts = [f"# {title}", NOTE, text]
        for heading, before, head, rows in sections:
            parts += [f"## {heading}"] if heading else []
            parts += [before] if before else []
            parts.append(_table(head, rows()))
        yield FOLDER / f"{name}.md", "\n\n".join(parts) + "\n"


def _table(head: str, rows: Rows) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _families(base: type[errors.CortexError]) -> Iterator[type[errors.CortexError]]:
    yield base
    for child in base.__subclasses__():
        yield from _families(child)


def _code(name: str) -> str:
    return f"`{name}`"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == ():
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pages():
        path.write_text(text, "utf-8")
