"""An MCP server on its standard streams, of the standard library alone: it starts in 30 ms.

    server.py notes             a tool `look` that only reads
    server.py ledger FILE       a tool `append`: each call writes a line, also a repeated one
    server.py once FILE         a tool `put`: by its own record it keeps each text once, and writes
                                each call to FILE.calls

Between writing and answering it waits a moment, so that kills hit this window: 0.05 seconds, or as
many as another argument says.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = "0.05"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: dict[str, dict[str, Any]] = {
    "notes": {"name": "look", "annotations": {"readOnlyHint": True}},
    "ledger": {"name": "append"},
    "once": {"name": "put", "annotations": {"idempotentHint": True}},
}


def main(kind: str, file: str = "", wait_s: str = WAIT_S) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"]}
            answer["result"] = result(
                message["method"], message.get("params", {}), kind, Path(file), float(wait_s)
            )
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def result(
    method: str, params: dict[str, Any], kind: str, file: Path, wait_s: float
) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": kind, "version": "1"},
            }
        case "tools/list":
            return {"tools": [{**TOOLS[kind], "description": kind, "inputSchema": TEXT}]}
        case "tools/call":
            text = params["arguments"]["text"]
            if kind != "notes":
                write(kind, file, text)
            time.sleep(wait_s)
            return {"content": [{"type": "text", "text": f"{kind}: {text}"}]}
        case _:
            return {}


def write(kind: str, file: Path, text: str) -> None:
    if kind == "once":
        append(file.with_name(f"{file.name}.calls"), text)
        if file.exists() and text in file.read_text("utf-8").splitlines():
            return
    append(file, text)


def append(file: Path, text: str) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(number, f"{text}\n".encode())
        os.fsync(number)
    finally:
        os.close(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
