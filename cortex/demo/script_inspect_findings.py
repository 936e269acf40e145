"""The facts about the inspected folder in a conversation's tool results."""

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import orjson
from attrs import define, field

from cortex.demo.script import Call, tool_results

LANGUAGES = {
    ".py": "Python", ".pyi": "Python", ".js": "JavaScript", ".mjs": "JavaScript",
    ".jsx": "JavaScript", ".ts": "TypeScript", ".tsx": "TypeScript", ".go": "Go",
    ".rs": "Rust", ".java": "Java", ".kt": "Kotlin", ".scala": "Scala", ".rb": "Ruby",
    ".php": "PHP", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++",
    ".cs": "C#", ".swift": "Swift", ".ex": "Elixir", ".exs": "Elixir", ".erl": "Erlang",
    ".hs": "Haskell", ".ml": "OCaml", ".clj": "Clojure", ".lua": "Lua", ".jl": "Julia",
    ".sh": "Shell", ".sql": "SQL", ".tf": "Terraform", ".zig": "Zig", ".dart": "Dart",
    ".html": "HTML", ".css": "CSS", ".scss": "CSS", ".vue": "Vue",
}  # fmt: skip
BUILD_FILES = ("pyproject.toml", "package.json", "Cargo.toml", "go.mod", "pom.xml", "Makefile")
# Written by tools, not by people.
FOREIGN_FOLDERS = frozenset(
    {"node_modules", "vendor", "venv", "__pycache__", "dist", "build", "target", "site-packages"}
)
COUNTERS = ("wc", "sh")  # what counts lines, with the names of files or without
_WC_LINE = re.compile(r"\s*(\d+) (.+)")
_LEFT_OUT = re.compile(r"\[… \d+ bytes left out …\]")
_COMMIT = re.compile(r"([0-9a-f]{7,40}) (.*)")
_AUTHOR = re.compile(r"\s*(\d+)\t(.+)")


@define
class Findings:
    """All facts so far. Paths are as list_files returned them."""

    asked: list[tuple[str, dict[str, Any]]] = field(factory=list)
    failed: list[tuple[str, str]] = field(factory=list)  # the request, and why it failed
    files: list[str] = field(factory=list)
    folders: list[str] = field(factory=list)
    links: int = 0
    truncated: bool = False  # there are more files than were listed
    left_out: list[str] = field(factory=list)  # folders that were not searched
    commits: list[tuple[str, str]] = field(factory=list)  # short hash, subject
    authors: list[tuple[int, str]] = field(factory=list)  # commits, name
    lines: dict[str, int] = field(factory=dict)
    texts: dict[str, str] = field(factory=dict)
    is_written: bool = False  # the report is on the disk
    mailed_to: list[str] = field(factory=list)

    @property
    def own(self) -> list[str]:
        """The files outside hidden and generated folders."""
        return [path for path in self.files if _is_own(path)]

    @property
    def sources(self) -> list[str]:
        """The files that people wrote in a language we know."""
        return [path for path in self.own if language(path) and _is_plain(path)]

    @property
    def at_least(self) -> str:
        """Prefix of a number of files."""
        return "at least " if self.truncated else ""

    @property
    def suffixes(self) -> list[str]:
        """The endings of the sources' names."""
        return sorted({PurePosixPath(path).suffix.lower() for path in self.sources})

    @property
    def unmeasured(self) -> int:
        """Sources whose lines were not counted."""
        return sum(path not in self.lines for path in self.sources)

    @property
    def introductions(self) -> list[str]:
        """The files to read first, at the top of the folder: what it is, how it is built."""
        top = [path for path in self.files if "/" not in path and _is_plain(path)]
        readme = [path for path in top if path.lower().startswith("readme")]
        return readme[:1] + [path for path in BUILD_FILES if path in top]

    @property
    def largest(self) -> list[tuple[str, int]]:
        """Sources and their lines, the longest first."""
        measured = [(path, self.lines[path]) for path in self.sources if path in self.lines]
        return sorted(measured, key=lambda each: (-each[1], each[0]))

    @property
    def by_language(self) -> list[tuple[str, int, int]]:
        """Language, files, lines; the one with most lines first."""
        files, lines = Counter[str](), Counter[str]()
        for path in self.sources:
            name = language(path) or ""
            files[name] += 1
            lines[name] += self.lines.get(path, 0)
        return sorted(
            ((name, files[name], lines[name]) for name in files),
            key=lambda each: (-each[2], -each[1], each[0]),
        )


def findings(call: Call) -> Findings:
    """Read every finished tool call of the conversation."""
    found = Findings()
    for use, result, is_error in tool_results(call):
        name, given = use["name"], use["input"]
        found.asked.append((name, given))
        if is_error:
            found.failed.append((_described(name, given), _first_line(result)))
        else:
            _learn(found, name, given, result=result)
    return found


def language(path: str) -> str | None:
    """The language of a source file, by its name."""
    return LANGUAGES.get(PurePosixPath(path).suffix.lower())


def _learn(found: Findings, name: str, given: dict[str, Any], *, result: str) -> None:
    match name:
        case "list_files":
            _learn_files(found, _json(result))
        case "read_file":
            text = _json(result)
            found.texts[str(given.get("path"))] = text if isinstance(text, str) else result
        case "run_command":
            completed = _json(result)
            if not isinstance(completed, dict):
                completed = {"stdout": result}
            argv = given.get("argv") or [""]
            is_counted = argv[0] in COUNTERS and completed.get("stdout")  # some file may be gone
            if completed.get("exit_code", 0) not in (0, None) and not is_counted:
                why = _first_line(str(completed.get("stderr", ""))) or "it failed"
                found.failed.append((_described(name, given), why))
                return
            _learn_output(found, argv, str(completed.get("stdout", "")))
        case "write_file":
            found.is_written = True
        case "send_mail":
            # A note follows if a person changed the arguments: only the result has the recipients.
            sent = _json(result.partition("\n")[0])
            found.mailed_to = sent["to"] if isinstance(sent, dict) else []
        case _:
            pass  # unknown tools that the agent may have


def _learn_files(found: Findings, listing: Any) -> None:
    if isinstance(listing, dict):
        found.truncated = bool(listing.get("truncated"))
        found.left_out = [str(path) for path in listing.get("left_out", ())]
        listing = listing.get("paths", [])
    paths = listing.splitlines() if isinstance(listing, str) else listing
    for path in map(str, paths):
        if path.endswith("/"):
            found.folders.append(path.rstrip("/"))
        elif path.endswith("@"):
            found.links += 1
        else:
            found.files.append(path)


def _learn_output(found: Findings, argv: list[str], output: str) -> None:
    match argv[:2]:
        case ["git", "log"]:
            matches = filter(None, map(_COMMIT.match, output.splitlines()))
            found.commits = [(each[1], each[2]) for each in matches]
        case ["git", "shortlog"]:
            matches = filter(None, map(_AUTHOR.match, output.splitlines()))
            found.authors = [(int(each[1]), each[2]) for each in matches]
        case ["wc" | "sh", _]:
            asked = set(found.sources)
            for match in filter(None, map(_WC_LINE.fullmatch, _whole_lines(output))):
                if match[2] in asked:
                    found.lines[match[2]] = int(match[1])
        case _:
            pass


def _whole_lines(output: str) -> list[str]:
    """Return complete lines: beside the gap of a shortened output they are cut."""
    lines = output.splitlines()
    gaps = {place for place, line in enumerate(lines) if _LEFT_OUT.fullmatch(line)}
    cut = {place + step for place in gaps for step in (-1, 0, 1)}
    return [line for place, line in enumerate(lines) if place not in cut]


def _json(text: str) -> Any:
    """Return the JSON of a result, with or without the loop's encoding."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _is_own(path: str) -> bool:
    folders = PurePosixPath(path).parts[:-1]
    return not any(part in FOREIGN_FOLDERS or part.startswith(".") for part in folders)


def _is_plain(path: str) -> bool:
    """Return whether the name is unchanged: list_files replaces what is not UTF-8."""
    return path.isprintable() and "\ufffd" not in path


def _described(name: str, given: dict[str, Any]) -> str:
    if name == "run_command":
        return " ".join(map(str, given.get("argv", [])))[:80]
    return f"{name} {given.get('path') or given.get('pattern') or ''}".strip()


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:160]
