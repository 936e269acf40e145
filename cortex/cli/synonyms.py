"""Words that users of other tools type: aliases of commands, and suggestions.

An alias does what its command does. Commands that change more than they name have none. An
ambiguous word is not an alias: the error suggests the possible commands.

The same holds for options: `jobs ls --failed` is refused with the option that the command has.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "list": ("ls",),
    "describe": ("show", "ls"),
    "show": ("ls",),
    "get": ("show", "ls"),
    "inspect": ("show", "ls"),
    "status": ("show", "ls"),
    "kill": ("cancel",),
    "stop": ("cancel",),
    "tail": ("watch",),
    "follow": ("watch",),
    "view": ("show",),
    "remove": ("rm",),
    "delete": ("rm",),
    "ps": ("ls --status running",),
    "run": ("submit --wait",),
    "send": ("signal",),
}
"""In a group: the first of these that it has, with options."""

TOP: Final[Mapping[str, str]] = {
    "list": "jobs ls",
    "ls": "jobs ls",
    "ps": "jobs ls --status running",
    "describe": "jobs show",
    "get": "jobs show",
    "inspect": "jobs show",
    "show": "jobs show",
    "submit": "jobs submit",
    "wait": "jobs wait",
    "kill": "jobs cancel",
    "cancel": "jobs cancel",
    "retry": "jobs retry",
    "signal": "jobs signal",
    "log": "logs",
    "tail": "logs --follow",
    "watch": "jobs watch",
    "types": "jobs types",
    "settings": "config show",
    "status": "doctor",
    "approve": "approvals approve",
    "deny": "approvals deny",
    "drain": "pods drain",
    "top": "tui",
}
_OF_NOUNS: Final = frozenset({"list", "ls", "describe", "get", "show", "inspect", "kill", "cancel"})
_LOGS_OF_A_JOB: Final = [{noun, verb} for noun in ("job", "jobs") for verb in ("log", "logs")]
_PS: Final = "ps"
HELP: Final = "help"
_DEFAULTS: Final = ("ls", "show", "status")
"""A group without a verb runs the first of these that it has."""
_ID: Final = re.compile(r"…?(?=.*\d)[0-9a-f-]{4,36}", re.IGNORECASE)
"""An id or the end of one; with a digit, so that a word with a typing error is none."""

_NAME: Final = re.compile(r"[\w.:-]+")
"""A word that may be the name of an agent, a flow, a schedule …"""

OPTIONS: Final[Mapping[str, str]] = {
    "--failed": "--status fail",
    "--running": "--status run",
    "--pending": "--status pend",
    "--waiting": "--status appr",
    "--state": "--status",
    "-s": "--status",
    "-t": "--type",
    "--last": "--limit",
    "--tail": "--limit",
    "--count": "--limit",
    "--param": "--arg",
    "-p": "--arg",
    "--input": "--payload",
    "-d": "--payload",
    "--payload": "--data",
    "--database": "--dsn",
    "--db": "--dsn",
    "--url": "--dsn",
    "--host": "--http HOST:PORT",
    "--port": "--http HOST:PORT",
    "--force": "--yes",
    "-y": "--yes",
    "-v": "--version",
}
"""Options of other tools, and those that the error suggests where a command has them."""

_MEANINGS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("remove", "delete", "rm", "del", "destroy", "purge", "drop"): (
        "jobs cancel",
        "dead discard",
        "budgets rm",
        "quotas rm",
        "tokens revoke",
    ),
    ("kill", "abort", "terminate", "stop", "halt", "shutdown"): (
        "jobs cancel",
        "pods drain",
        "pause",
    ),
    ("down", "quit", "exit"): ("pods drain", "freeze on"),
    ("start", "serve", "worker", "server", "daemon", "agent-run", "launch"): ("up", "dev"),
    ("trigger", "fire"): ("schedules trigger", "jobs submit"),
    ("enqueue", "invoke", "push", "call"): ("jobs submit",),
    ("send", "notify", "emit"): ("jobs signal", "jobs submit"),
    ("exec", "execute"): ("run", "jobs submit"),
    ("deploy", "release", "rollout"): ("preflight", "up"),
    ("search", "find", "grep", "query", "filter"): ("jobs ls",),
    ("about", "whoami"): ("version", "doctor"),
    ("create", "new", "add", "schedule"): (
        "init",
        "jobs submit",
        "agents apply",
        "budgets set",
        "quotas set",
        "tokens create",
    ),
    ("set", "change", "edit", "update", "apply"): (
        "agents apply",
        "budgets set",
        "quotas set",
    ),
    ("suspend", "hold", "cordon"): ("pause", "pods drain", "freeze on"),
    ("continue", "unpause", "uncordon", "unfreeze"): (
        "resume",
        "jobs resume",
        "pods undrain",
        "freeze off",
    ),
    ("restart", "rerun", "redo", "requeue", "replay"): ("jobs retry", "dead retry"),
    ("check", "ping", "diagnose", "verify", "config", "info"): ("doctor",),
    ("test", "lint", "validate"): ("preflight", "doctor", "flows validate"),
    ("env", "environment", "settings"): ("config show",),
    ("ui", "dashboard", "monitor", "console", "htop", "gui"): ("tui",),
    ("develop", "development", "reload", "autoreload"): ("dev",),
    ("web", "http", "api", "open"): ("up --http HOST:PORT", "tui"),
    ("assistant", "assistants", "claude", "cursor", "copilot"): ("mcp",),
    ("stats", "statistics", "metrics", "alerts"): ("health", "costs"),
    ("shell", "repl", "sql", "psql"): ("tui", "config show"),
    ("setup", "bootstrap", "scaffold"): ("init", "migrate"),
    ("install", "upgrade", "db", "database", "schema"): ("migrate", "up"),
    ("error", "errors", "failed", "failures", "dlq", "dead-letters", "deadletters"): ("dead ls",),
    ("worker", "workers", "node", "nodes", "process", "processes"): ("pods ls",),
    ("workflow", "workflows", "pipeline", "pipelines"): ("flows ls",),
    ("task", "tasks", "runs", "execution", "executions"): ("jobs ls",),
    ("billing", "usage", "spend", "spending", "price", "prices", "money"): ("costs", "budgets ls"),
    ("limit", "rate", "throttle", "concurrency"): ("limits ls", "quotas ls", "budgets ls"),
    ("event", "events", "history"): ("jobs show", "jobs watch", "facts"),
    ("audit", "changes"): ("facts",),
    ("trace", "step", "steps", "timeline", "waterfall", "result", "output", "payload"): (
        "jobs show",
    ),
    ("type", "handlers", "registered"): ("jobs types",),
    ("tool", "tools"): ("agents show", "jobs types"),
    ("running", "active"): ("ps",),
    ("completed", "done", "finished"): ("jobs ls --status done",),
    ("docs", "man", "manual", "usage-help", "examples", "commands", "?"): ("help",),
    ("login", "auth", "key", "keys", "secret", "password"): ("tokens create",),
    ("accept", "confirm", "allow", "yes", "grant"): ("approvals approve",),
    ("reject", "refuse", "decline", "disallow"): ("approvals deny",),
    ("inbox", "pending", "requests"): ("approvals ls",),
    ("circuit", "circuits", "open", "close", "trip", "reset"): ("breakers open", "breakers close"),
    ("cron", "crontab", "timer", "timers", "periodic"): ("schedules ls", "schedules apply"),
    ("explain", "reason", "stuck"): ("why",),
    ("benchmark", "perf"): ("bench",),
    ("follow", "attach", "stream"): ("jobs watch", "approvals watch"),
    ("discard", "dismiss", "archive", "ack"): ("dead discard",),
    ("details", "detail", "view", "cat", "see", "look"): ("jobs show", "dead show"),
}
SUGGESTED_MAX: Final = 3


def is_id(word: str) -> bool:
    """Whether a word may be the id of a job, or the end of one."""
    return _ID.fullmatch(word) is not None


def default_verb(verbs: Collection[str]) -> str | None:
    """Return the verb of a group that is called without one; it reads, and changes nothing."""
    return next((each for each in _DEFAULTS if each in verbs), None)


def option_meant(option: str, options: Collection[str]) -> str | None:
    """Return the option of a command that one of another tool means, if it has it."""
    meant = OPTIONS.get(option, "")
    return meant if meant.partition(" ")[0] in options else None


def expanded(words: Sequence[str], nouns: Collection[str]) -> list[str]:
    """Return the command that a line means; the same line if it is not an alias."""
    first, rest = words[0], list(words[1:])
    if is_id(first):
        return ["jobs", "show", *words]
    if rest and {first, rest[0]} in _LOGS_OF_A_JOB:  # `jobs logs ID`, `logs job ID`
        return ["logs", *rest[1:]]
    return list(words) if first in nouns else _of_alias(first, rest, nouns)


def _of_alias(first: str, rest: list[str], nouns: Collection[str]) -> list[str]:
    noun = _noun(rest[0], nouns) if rest else None
    if first in _OF_NOUNS and noun is not None:  # `get pods`, `describe job ID`
        named = [word for word in rest[1:2] if not word.startswith("-")]
        lists = first in ("list", "ls") or (first in ("get", "show", "describe") and not named)
        return [noun, "ls" if lists else first, *rest[1:]]
    if first == "status" and rest and not rest[0].startswith("-"):
        return ["jobs", "show", *rest]
    if first in TOP:
        return [*TOP[first].split(), *rest]
    noun = _noun(first, nouns)
    return [first if noun is None else noun, *rest]


def verb_of(word: str, verbs: Collection[str]) -> list[str]:
    """Return the verb of a group that a word means, with options; empty if it is not an alias."""
    for meant in VERBS.get(word, ()):
        if word not in verbs and meant.split()[0] in verbs:
            return [] if word == _PS and "submit" not in verbs else meant.split()
    return []


def aliases_of(verbs: Collection[str]) -> dict[str, str]:
    """Return the aliases of a group's verbs and their meanings."""
    found = {word: " ".join(verb_of(word, verbs)) for word in VERBS}
    return {word: meant for word, meant in found.items() if meant}


def suggestions(word: str, commands: Collection[str], *, group: str = "") -> list[str]:
    """Return suggestions for an unknown command: by meaning, else by spelling.

    Commands of the same group come first; `commands` are the existing ones.
    """
    meant = _meant(word.lower()) or _meant(word.lower().removesuffix("s"))
    if group:
        own = [each.removeprefix(f"{group} ") for each in meant if each.startswith(f"{group} ")]
        meant = [each for each in own if each in commands]
    known = [*commands, *(aliases_of(commands) if group else TOP)]
    found = meant or difflib.get_close_matches(word, known, n=SUGGESTED_MAX)
    if not found and group and "show" in commands and _NAME.fullmatch(word):
        found = [f"show {word}"]
    return list(dict.fromkeys(found))[:SUGGESTED_MAX]


def _meant(word: str) -> list[str]:
    return [each for words, found in _MEANINGS.items() if word in words for each in found]


def _noun(word: str, nouns: Collection[str]) -> str | None:
    """Return the group that a word names, in the singular or the plural."""
    for each in (word, f"{word}s"):
        if each in nouns and each.endswith("s"):
            return each
    return None
