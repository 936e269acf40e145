"""The Markdown report of the `inspect` script: only facts from the tool results."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from cortex.demo.script_inspect_findings import Findings, language

LARGEST_SHOWN = 8
FOLDERS_SHOWN = 12
AUTHORS_SHOWN = 8
FAILURES_SHOWN = 8
PARAGRAPH_CHARS_MAX = 420
CELL_CHARS_MAX = 96
BAR_CHARS = 20
LONG_FILE_LINES = 500
_OPEN_WORK = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def report(found: Findings) -> str:
    """The whole report."""
    sections = [
        ("", _glance(found)),
        ("What it is", _purpose(found)),
        ("Languages", _languages(found)),
        ("Layout", _layout(found)),
        ("Largest sources", _largest(found)),
        ("History", _history(found)),
        ("Worth a look", _remarks(found)),
        ("How this was made", _method(found)),
    ]
    parts = [f"# {_title(found)}"]
    for heading, lines in sections:
        if body := "\n".join(lines):
            parts += [f"## {heading}", body] if heading else [body]
    return "\n\n".join(parts) + "\n"


def summary(found: Findings) -> str:
    """Return the agent's closing message, in a sentence or two."""
    failed = next((why for what, why in found.failed if what.startswith("write_file")), None)
    if failed is not None:
        return f"I looked at {_files(found)} but could not write report.md: {failed}"
    text = f"report.md is written: {_files(found)}"
    if found.lines:
        text += f", {_at_least_lines(found)}{_count(sum(found.lines.values()), 'line')} of source"
        text += f", mostly {found.by_language[0][0]}"
    if found.commits:
        text += f"; the last commit is {found.commits[0][0]} “{found.commits[0][1]}”"
    if found.mailed_to:
        text += f". I have mailed it to {' and '.join(found.mailed_to)}"
    return text + "."


def subject(found: Findings) -> str:
    """The subject of the mail with the report."""
    return _title(found)


def mail_text(found: Findings) -> str:
    """The text of that mail: short, since a person has to read it."""
    lines = sum(found.lines.values())
    return (
        "Hello,\n\nthe report is attached:\n"
        f"{_files(found)}, {_at_least_lines(found)}{_count(lines, 'line')}.\n\n"
        "Written by an agent.\n"
    )


def _files(found: Findings) -> str:
    return f"{found.at_least}{_count(len(found.own), 'file')}"


def _at_least_lines(found: Findings) -> str:
    return "at least " if found.truncated or found.unmeasured else ""


def _glance(found: Findings) -> Iterator[str]:
    if not found.files:
        yield (
            "The folder holds no files."
            if not found.folders
            else (f"The folder holds {_count(len(found.folders), 'folder')} and no files.")
        )
        return
    more, lines = found.at_least, sum(found.lines.values())
    apart = len(found.files) - len(found.own)
    rows = [
        ("Files", f"{more}{len(found.own):,}"),
        ("In hidden or generated folders", f"{more}{apart:,} more"),
        ("Sources", f"{more}{_count(len(found.sources), 'file')}"),
        (
            "Lines of source",
            f"{_at_least_lines(found)}{lines:,}" if found.lines else "not measured",
        ),
        ("Tests", _count(len(_tests(found)), "file")),
        ("Last commit", _code(found.commits[0][0]) if found.commits else "not a git repository"),
    ]
    yield from _table(("What", "How much"), rows)
    if found.left_out:
        yield ""
        yield f"Not looked into, since tools fill it: {', '.join(map(_code, found.left_out))}."
    if found.truncated:
        yield ""
        yield "The list of files was cut: there are more."
    if found.lines and found.unmeasured:
        yield ""
        yield f"Of {_count(found.unmeasured, 'source')} the lines were not counted."


def _purpose(found: Findings) -> Iterator[str]:
    for path in found.introductions:
        if path.lower().startswith("readme") and (text := _first_paragraph(found.texts.get(path))):
            yield f"> {text}"
            yield ""
            yield f"From {_code(path)}."
            return


def _languages(found: Findings) -> Iterator[str]:
    total = sum(found.lines.values())
    if not found.sources:
        return
    rows = []
    for name, files, lines in found.by_language:
        share = lines / total if total else 0
        bar = "█" * max(1, round(share * BAR_CHARS)) if total else ""
        rows.append((name, f"{files:,}", f"{lines:,}", f"{bar} {share:.0%}"))
    yield from _table(("Language", "Files", "Lines", "Share"), rows)


def _layout(found: Findings) -> Iterator[str]:
    files = Counter(path.split("/")[0] for path in found.own if "/" in path)
    lines = Counter[str]()
    for path, count in found.lines.items():
        lines[path.split("/")[0]] += count
    rows = [
        (_code(f"{name}/"), f"{count:,}", f"{lines[name]:,}" if lines[name] else "")
        for name, count in files.most_common(FOLDERS_SHOWN)
    ]
    if rows:
        rows.append(("(top level)", f"{sum('/' not in path for path in found.own):,}", ""))
        yield from _table(("Folder", "Files", "Lines of source"), rows)


def _largest(found: Findings) -> Iterator[str]:
    rows = [
        (_code(path), f"{lines:,}", _about(found.texts.get(path, "")))
        for path, lines in found.largest[:LARGEST_SHOWN]
    ]
    if rows:
        yield from _table(("File", "Lines", "What it says about itself"), rows)


def _history(found: Findings) -> Iterator[str]:
    for short, subject in found.commits:
        yield f"- {_code(short)} {_plain(subject)}"
    if found.authors:
        total = sum(count for count, _ in found.authors)
        text = ", ".join(
            f"{_plain(name)} ({count})" for count, name in found.authors[:AUTHORS_SHOWN]
        )
        yield ""
        yield f"{_count(total, 'commit')} by {_count(len(found.authors), 'author')}: {text}."


def _remarks(found: Findings) -> Iterator[str]:
    if not found.files:
        return
    names = {path.lower().split(".")[0] for path in found.files if "/" not in path}
    if "readme" not in names:
        yield "- There is no README at the top level."
    if not names & {"license", "licence", "copying"}:
        yield "- There is no licence file at the top level."
    if found.sources and not _tests(found):
        yield "- No file looks like a test."
    for path, lines in found.largest:
        if lines > LONG_FILE_LINES:
            yield f"- {_code(path)} is the longest source with {lines:,} lines."
            break
    marks = {path: len(_OPEN_WORK.findall(text)) for path, text in found.texts.items()}
    for path, count in sorted(marks.items()):
        if count and language(path):
            yield f"- {_code(path)} holds {_count(count, 'note')} of open work (TODO, FIXME)."
    yield from _dependencies(found)


def _dependencies(found: Findings) -> Iterator[str]:
    try:
        project = tomllib.loads(found.texts.get("pyproject.toml", "")).get("project", {})
        package = orjson.loads(found.texts.get("package.json", "{}"))
    except (ValueError, AttributeError):
        return
    for path, listed in (
        ("pyproject.toml", project.get("dependencies") if isinstance(project, dict) else None),
        ("package.json", package.get("dependencies") if isinstance(package, dict) else None),
    ):
        if isinstance(listed, list | dict):
            yield f"- {_code(path)} names {_count(len(listed), 'dependency', 'dependencies')}."


def _method(found: Findings) -> Iterator[str]:
    used = Counter(name for name, _ in found.asked)
    text = ", ".join(f"{_code(name)} x {count}" for name, count in sorted(used.items()))
    yield f"{_count(len(found.asked), 'tool call')}: {text}."
    if found.texts:
        yield f"Read in full or in part: {', '.join(map(_code, sorted(found.texts)))}."
    if found.failed:
        yield ""
        yield "What did not work:"
        yield ""
        for what, why in found.failed[:FAILURES_SHOWN]:
            yield f"- {_code(what)}: {_plain(why)}"


def _title(found: Findings) -> str:
    for path in found.introductions:
        for line in found.texts.get(path, "").splitlines():
            if path.lower().startswith("readme") and line.startswith("# "):
                return f"Inspection of {_plain(line[2:])}"
    return "Inspection"


def _tests(found: Findings) -> list[str]:
    marks = ("test_", "_test.", ".test.", ".spec.", "/tests/", "/test/")
    return [path for path in found.sources if any(mark in f"/{path}" for mark in marks)]


def _about(text: str) -> str:
    """The first sentence of a file's own head: its docstring or its first comment."""
    for line in text.splitlines()[:12]:
        text = line.strip().lstrip("#/*-;\"' ").rstrip("\"'*/ ")
        if line.startswith("#!") or not re.search(r"[A-Za-z]{3}", text):
            continue
        is_head = line.lstrip().startswith(("#", "//", "/*", "*", '"""', "'''", "--", ";"))
        return _plain(text) if is_head else ""
    return ""


def _first_paragraph(text: str | None) -> str:
    for block in re.split(r"\n\s*\n", text or ""):
        text = " ".join(block.split())
        if text and not text.startswith(("#", "<", "[!", "![", "```", "|", "---", "===")):
            cut = text[:PARAGRAPH_CHARS_MAX]
            return cut if cut == text else cut.rsplit(" ", 1)[0] + " …"
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _plain(text: str) -> str:
    """Text from the folder, as one line that cannot break a table."""
    shown = "".join(char if char.isprintable() else "·" for char in " ".join(text.split()))
    cut = shown if len(shown) <= CELL_CHARS_MAX else shown[: CELL_CHARS_MAX - 1] + "…"
    return cut.replace("|", "\\|")


def _code(text: str) -> str:
    shown = _plain(text).replace("`", "'")
    return f"`{shown}`"
