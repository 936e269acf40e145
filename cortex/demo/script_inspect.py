"""`inspect`: the demo's agent. It looks at a folder and writes report.md about it.

    look      list the files, read the git log
    measure   count lines, list authors, read README and the build file
    read      read the largest sources
    write     write_file report.md
    mail      send_mail it, to more people than the prompt names
    close     summarise

A round requests the calls that it wants and has not made yet, from the offered tools; with
none left it is over. All knowledge of the model is in the conversation, so that a resumed
job goes on as if nothing had happened.
"""

from typing import Any

from cortex.demo.mail import SEND_MAIL
from cortex.demo.script import Call, Refusal, Reply
from cortex.demo.script_inspect_findings import Findings, findings
from cortex.demo.script_inspect_report import mail_text, report, subject, summary

COMMITS_SHOWN = 15
LISTED_FILES_MAX = 2_000
"""A model gets this whole, unless paths are longer than 45 bytes on average: else it is cut."""
MEASURED_FILES_MAX = 400
"""Without git to name them: each name costs the model time."""
READ_FIRST_MAX = 4
READ_LARGEST_MAX = 4
REPORT = "report.md"
MAILED_TO = ("team@example.org", "customers@example.org")
"""The second one is the model's own idea: a person should notice it before approving."""
TURNS_MAX = 12  # in case a rewritten conversation never ends a round

# The pace of a real model, roughly.
FIRST_TOKEN_S = 0.25
CHUNK_S = 0.025

ToolInput = tuple[str, dict[str, Any]]


def inspect(call: Call) -> Reply | Refusal:
    """Return the next request about the folder."""
    found = findings(call)
    offered = {tool.get("name") for tool in call.tools}
    for text, wanted in (_look(), _measure(found), _read(found), _write(found), _mail(found)):
        fresh = [(name, given) for name, given in wanted if name in offered]
        fresh = [each for each in fresh if each not in found.asked]
        if fresh and call.turn < TURNS_MAX:
            return _reply(call, text, fresh)
    return _reply(call, summary(found) if "write_file" in offered else report(found), [])


def _look() -> tuple[str, list[ToolInput]]:
    log = ["git", "log", "--oneline", "-n", str(COMMITS_SHOWN)]
    text = "Let me see what is in this folder and what happened to it lately."
    return text, [
        ("list_files", {"pattern": "**/*", "limit": LISTED_FILES_MAX}),
        ("run_command", {"argv": log}),
    ]


def _measure(found: Findings) -> tuple[str, list[ToolInput]]:
    wanted: list[ToolInput] = []
    if found.commits and found.sources:
        patterns = " ".join(f"':(icase)*{suffix}'" for suffix in found.suffixes)
        files = f"git ls-files -z --cached --others --exclude-standard -- {patterns}"
        wanted.append(("run_command", {"argv": ["sh", "-c", f"{files} | xargs -0 wc -l --"]}))
    elif sources := found.sources[:MEASURED_FILES_MAX]:
        wanted.append(("run_command", {"argv": ["wc", "-l", "--", *sources]}))
    if found.commits:
        wanted.append(("run_command", {"argv": ["git", "shortlog", "-sn", "HEAD"]}))
    wanted += [("read_file", {"path": path}) for path in found.introductions[:READ_FIRST_MAX]]
    files = f"{found.at_least}{len(found.own):,} files"
    text = f"There are {files}. I will measure the sources and read the overview."
    return text, wanted


def _read(found: Findings) -> tuple[str, list[ToolInput]]:
    paths = [path for path, _ in found.largest[:READ_LARGEST_MAX]]
    return "Now the largest sources.", [("read_file", {"path": path}) for path in paths]


def _write(found: Findings) -> tuple[str, list[ToolInput]]:
    if any(name == "write_file" for name, _ in found.asked):
        return "", []
    content = report(found)
    text = "I have what I need and write the report."
    return text, [("write_file", {"path": REPORT, "content": content})]


def _mail(found: Findings) -> tuple[str, list[ToolInput]]:
    if not found.is_written or any(name == SEND_MAIL for name, _ in found.asked):
        return "", []
    mail = {
        "to": list(MAILED_TO),
        "subject": subject(found),
        "text": mail_text(found),
        "with_file": REPORT,
    }
    text = "The report is written. I mail it to the team, and to all customers: they may like it."
    return text, [(SEND_MAIL, mail)]


def _reply(call: Call, text: str, tools: list[ToolInput]) -> Reply:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for index, (name, given) in enumerate(tools):
        id_ = f"toolu_{call.conversation}_{call.turn}_{index}"
        content.append({"type": "tool_use", "id": id_, "name": name, "input": given})
    return Reply(content=tuple(content), first_delay_s=FIRST_TOKEN_S, delay_s=CHUNK_S)
