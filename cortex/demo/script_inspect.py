"""`inspect`: the demo's agent. It looks at a folder and writes report.md about it.

    look      list the files, read the git log
    measure   count lines, list authors, read README and the build files
    read      read the largest sources
    write     write_file report.md
    close     say what was found

Each round uses only tools that the call offers, and is skipped when there is nothing to do. What
the model "knows" is in the conversation, so a resumed job goes on as if nothing had happened.
"""

from typing import Any

from cortex.demo.inspect_findings import Findings, findings
from cortex.demo.inspect_report import report, summary
from cortex.demo.script import Call, Refusal, Reply

COMMITS_SHOWN = 15
MEASURED_FILES_MAX = 400
READ_FIRST_MAX = 4
READ_LARGEST_MAX = 4
REPORT = "report.md"

# The pace of a real model, roughly: time to the first token, then some sixty tokens a second.
FIRST_TOKEN_S = 0.25
CHUNK_S = 0.025

ToolInput = tuple[str, dict[str, Any]]


def inspect(call: Call) -> Reply | Refusal:
    """Whatever is to be done next about the folder."""
    found = findings(call)
    offered = {tool.get("name") for tool in call.tools}
    if REPORT in found.asked_to_write:
        return _say(summary(found))
    for said, wanted in (_look(), _measure(found), _read(found)):
        fresh = [each for each in wanted if each[0] in offered and not found.has_asked(*each)]
        if fresh and not found.is_past(said):
            return _say(said, call=call, tools=fresh)
    text = report(found)
    if "write_file" not in offered:
        return _say(text)
    said = "I have what I need. Writing the report."
    return _say(said, call=call, tools=[("write_file", {"path": REPORT, "content": text})])


def _look() -> tuple[str, list[ToolInput]]:
    log = ["git", "log", "--oneline", "-n", str(COMMITS_SHOWN)]
    return (
        "Let me see what is in this folder and what happened to it lately.",
        [("list_files", {"pattern": "**/*"}), ("run_command", {"argv": log})],
    )


def _measure(found: Findings) -> tuple[str, list[ToolInput]]:
    wanted: list[ToolInput] = []
    if sources := found.sources[:MEASURED_FILES_MAX]:
        wanted.append(("run_command", {"argv": ["wc", "-l", "--", *sources]}))
    if found.commits:
        wanted.append(("run_command", {"argv": ["git", "shortlog", "-sn", "HEAD"]}))
    wanted += [("read_file", {"path": path}) for path in found.introductions[:READ_FIRST_MAX]]
    return f"{len(found.files)} files. I will measure the sources and read the overview.", wanted


def _read(found: Findings) -> tuple[str, list[ToolInput]]:
    largest = [path for path, _ in found.largest if path not in found.texts][:READ_LARGEST_MAX]
    return "Now the largest sources.", [("read_file", {"path": path}) for path in largest]


def _say(text: str, *, call: Call | None = None, tools: list[ToolInput] | None = None) -> Reply:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for index, (name, given) in enumerate(tools or ()):
        id_ = f"toolu_{call.conversation}_{call.turn}_{index}" if call else ""
        content.append({"type": "tool_use", "id": id_, "name": name, "input": given})
    return Reply(content=tuple(content), first_delay_s=FIRST_TOKEN_S, delay_s=CHUNK_S)
