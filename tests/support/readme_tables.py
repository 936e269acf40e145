"""The README's tables, made from the code's own data: `python -m tests.support.readme_tables`."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from cortex.agent.tools import BUILT_IN
from cortex.cli.failures import EXIT_CODES
from cortex.config import Settings
from cortex.domain import breaker, errors
from cortex.domain.failure_codes import CODES
from cortex.domain.job import TRANSITIONS
from cortex.domain.phrases import NOTHING
from cortex.domain.policy import DEFAULT, JOB_HARD, POLICIES
from cortex.domain.retry import CALL_RETRIES
from cortex.domain.timeouts import TIMEOUTS
from cortex.http.framework.route import PUBLIC
from cortex.http.routes import ALL
from cortex.runtime.metrics.metrics_catalogue import METRICS
from cortex_tui.key import EVERYWHERE, GROUPS, LISTS, Key
from cortex_tui.key_table import shown
from cortex_tui.keys import KEYS

README: Final = Path(__file__).parent.parent.parent / "README.md"
Rows = Iterable[list[str]]


def _settings() -> Rows:
    for field in attrs.fields(Settings):
        yield [_code(field.name), _shown(field.default), field.metadata["doc"]]


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
        told = meaning.told + ("; a person is told at once" if meaning.is_escalated else "")
        yield [_code(code), meaning.cls.value, told]


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


def _routes() -> Rows:
    for route in ALL:
        role = "all" if route.role is PUBLIC else str(route.role).lower()
        yield [_code(f"{route.method} {route.path}"), role, route.summary]


def _keys() -> Rows:
    for group in GROUPS:
        for key in (each for each in KEYS if each.group == group):
            signs = " ".join(_code(shown(each).replace("|", r"\|")) for each in key.keys)
            yield [signs, _place(key), key.help, _code(key.id)]


def _place(key: Key) -> str:
    if EVERYWHERE in key.where:
        return "everywhere"
    return "lists and pages" if key.where == LISTS else ", ".join(key.where)


TABLES: Final[dict[str, tuple[str, Callable[[], Rows]]]] = {
    "Settings": ("setting | default | what it is", _settings),
    "States": ("state | may become", _states),
    "Errors": ("code | exit | what it means", _errors),
    "Exit codes": ("exit code | what it means", _exit_codes),
    "Policies": (
        "job type | attempts | retries | base s | cap s | times | job s | call s | connect s",
        _policies,
    ),
    "Retries of one call": ("calls | base s | cap s | attempts", _call_retries),
    "Limits of time": ("what | default s | at most s", _limits),
    "Classes of failures": ("code | class | what happened", _classes),
    "Circuit breakers": (
        "breaker | opens after | of at least | open s | closes after | asks a person after",
        _breakers,
    ),
    "Keys": ("keys | where | what they do | id", _keys),
    "HTTP API": ("route | role | what it does", _routes),
    "Metrics": ("metric | type | labels | what it is", _metrics),
}
"""By the title of the section whose first table it is."""


def updated(readme: str) -> str:
    """Return the README with every table made anew. Raises `ValueError` for a missing section."""
    for title, (head, rows) in TABLES.items():
        section = re.compile(rf"(\n##+ {re.escape(title)}\n.*?\n)((?:\|[^\n]*\n)+)", re.DOTALL)
        table = "".join(_lines(head, rows()))
        found = section.search(readme)
        if found is None:
            raise ValueError(f"the README has no section {title!r} with a table")
        readme = readme[: found.start(2)] + table + readme[found.end(2) :]
    return readme


def _lines(head: str, rows: Rows) -> Iterator[str]:
    yield f"| {head} |\n"
    yield "|" + "---|" * (head.count("|") + 1) + "\n"
    yield from (f"| {' | '.join(row)} |\n" for row in rows)


def _families(base: type[errors.CortexError]) -> Iterator[type[errors.CortexError]]:
    yield base
    for child in base.__subclasses__():
        yield from _families(child)


def _code(name: str) -> str:
    return f"`{name}`"


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    README.write_text(updated(README.read_text("utf-8")), "utf-8")
