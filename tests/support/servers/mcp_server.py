"""An MCP server on its standard streams that behaves as its argument says, well or badly.

A program of its own, of the standard library alone: it starts within 30 ms, confined too. Run as
`python mcp_server.py JSON`, with an object of:

`start`: "hang", "exit", "garbage", "flood", "stderr" or "huge"; else it starts properly
`tools`: names of `TOOLS` that it offers, each or a list of a name and what is changed of it
`page`: how many tools it lists at a time
`marks`: a file that gets a line for each call that changes something

Its strictness is that of the official SDKs: a request before `notifications/initialized`, and one
with unknown members, is an error.
"""

import json
import os
import socket
import sys
import time
from typing import Any

VERSION = "2025-11-25"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
SAMPLE = {"messages": [], "maxTokens": 1}
READS = {"readOnlyHint": True}


def _tool(description: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"description": description, "inputSchema": schema, **more}


TOOLS: dict[str, dict[str, Any]] = {
    "echo": _tool("Return the text.", TEXT, annotations=READS),
    "create": _tool("Create an issue.", TEXT),
    "put": _tool("Put a text.", TEXT, annotations={"idempotentHint": True}),
    "sum": _tool("Add.", NOTHING, annotations=READS, outputSchema=SUM),
    "lie": _tool("Add wrongly.", NOTHING, annotations=READS, outputSchema=SUM),
    "fail": _tool("Fail.", TEXT),
    "huge": _tool("Return 50 MB.", NOTHING, annotations=READS),
    "large": _tool("Return 2 MB.", NOTHING, annotations=READS),
    "create_huge": _tool("Create, and return 50 MB.", NOTHING),
    "create_and_wait": _tool("Create an issue, and answer when there is a file `go`.", TEXT),
    "read_and_wait": _tool("Read, and answer when there is a file `go`.", TEXT, annotations=READS),
    "slow": _tool("Wait until it is cancelled.", NOTHING, annotations=READS),
    "die": _tool("Die before anything is done.", NOTHING, annotations=READS),
    "create_and_die": _tool("Create an issue and die.", TEXT),
    "flood": _tool("Send notifications without an end.", NOTHING, annotations=READS),
    "progress": _tool("Report progress.", NOTHING, annotations=READS),
    "picture": _tool("Return a picture.", NOTHING, annotations=READS),
    "ask": _tool("Ask for a title.", NOTHING),
    "change": _tool("Change the tools.", NOTHING, annotations=READS),
    "change_and_hang": _tool(
        "Change the tools, and list them no more.", NOTHING, annotations=READS
    ),
    "odd": _tool("Answer twice, and others, and ask for what no client offers.", TEXT),
    "fork": _tool("Leave a process of its own behind.", TEXT, annotations=READS),
    "environment": _tool("Return the environment.", NOTHING, annotations=READS),
    "look": _tool("Return what a path holds.", TEXT, annotations=READS),
    "connect": _tool("Connect to a port of this machine.", TEXT, annotations=READS),
    "unknown": _tool("Answer with an internal error.", NOTHING),
    "create_unfit": _tool("Create an issue, and refuse its own result.", TEXT),
    "refuse": _tool("Refuse the arguments.", NOTHING),
}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def described(each: Any) -> dict[str, Any]:
    name, changed = each if isinstance(each, list) else (each, {})
    like = changed.get("like", name)
    changed = {key: value for key, value in changed.items() if key != "like"}
    return {"name": name, **TOOLS.get(like, {}), **changed}


class Server:
    def __init__(self, how: dict[str, Any]) -> None:
        self.how = how
        self.tools = [described(each) for each in how.get("tools", ["echo"])]
        self.is_initialized = False
        self.asked = 0
        self.waiting: dict[Any, Any] = {}

    def send(self, **message: Any) -> None:
        say(json.dumps({"jsonrpc": "2.0", **message}))

    def answer(self, number: Any, text: str, **more: Any) -> None:
        result = {"content": [{"type": "text", "text": text}], **more}
        self.send(id=number, result=result)

    def mark(self, text: str) -> None:
        with open(self.how["marks"], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text + "\n")

    def run(self) -> None:
        self.start(self.how.get("start", ""))
        for line in sys.stdin:
            message = json.loads(line)
            if "method" in message:
                self.take(message)
            elif message.get("id") in self.waiting:
                self.waiting.pop(message["id"])(message)

    def start(self, how: str) -> None:
        match how:
            case "hang":
                time.sleep(3600)
            case "exit":
                sys.exit("no token: set GITHUB_TOKEN")
            case "blab":
                sys.exit(f"my token is {os.environ['NOTES']}")
            case "garbage":
                say("Welcome!\n" * 200)
            case "greeting":
                say("Welcome!")
            case "stderr":
                sys.stderr.write("complaint\n" * 1_000_000)
            case "flood":
                while True:
                    self.log()
            case "huge":
                say("x" * 50_000_000)
            case _:
                return

    def log(self) -> None:
        self.send(method="notifications/message", params={"level": "info", "data": "x"})

    def take(self, message: dict[str, Any]) -> None:
        number, params = message.get("id"), message.get("params", {})
        match message["method"]:
            case "initialize":
                capabilities = {"tools": {"listChanged": True}}
                about = {"name": "scripted", "version": "1"}
                self.send(
                    id=number,
                    result={
                        "protocolVersion": VERSION,
                        "capabilities": capabilities,
                        "serverInfo": about,
                    },
                )
            case "notifications/initialized":
                self.is_initialized = True
            case "notifications/cancelled":
                if self.how.get("marks"):
                    self.mark(f"cancelled {params['reason']}")
            case _ if not self.is_initialized:
                self.refuse(number, -32600, "not initialized")
            case "tools/list":
                self.list(number, int(params.get("cursor", 0)))
            case "tools/call":
                self.call(number, params)
            case method:
                self.refuse(number, -32601, f"no method {method}")

    def refuse(self, number: Any, code: int, text: str) -> None:
        self.send(id=number, error={"code": code, "message": text})

    def list(self, number: Any, first: int) -> None:
        count = self.how.get("page", 1000)
        if count == 0:
            return
        more = {"nextCursor": str(first + count)} if first + count < len(self.tools) else {}
        self.send(id=number, result={"tools": self.tools[first : first + count], **more})

    def call(self, number: Any, params: dict[str, Any]) -> None:
        name = params["name"]
        changed = {each[0]: each[1] for each in self.how["tools"] if isinstance(each, list)}
        act = getattr(self, f"do_{changed.get(name, {}).get('like', name)}", None)
        if act is None:
            self.refuse(number, -32602, f"no tool {name}")
        else:
            act(number, params.get("arguments", {}).get("text", ""), params)

    def do_echo(self, number: Any, text: str, _: Any) -> None:
        self.answer(number, text)

    def do_create(self, number: Any, text: str, _: Any) -> None:
        self.mark(text)
        self.answer(number, f"created {text}")

    do_put = do_create

    def do_sum(self, number: Any, *_: Any) -> None:
        self.answer(number, '{"sum": 3}', structuredContent={"sum": 3})

    def do_lie(self, number: Any, *_: Any) -> None:
        self.answer(number, '{"sum": "x"}', structuredContent={"sum": "x"})

    def do_fail(self, number: Any, *_: Any) -> None:
        self.answer(number, "404 no such repository", isError=True)

    def do_huge(self, number: Any, *_: Any) -> None:
        self.answer(number, "x" * 50_000_000)

    def do_large(self, number: Any, *_: Any) -> None:
        self.answer(number, "x" * 2_000_000)

    def do_create_huge(self, number: Any, *_: Any) -> None:
        """Answer as the SDK of TypeScript writes it: the id last."""
        self.mark("huge")
        result = {"content": [{"type": "text", "text": "x" * 50_000_000}]}
        say(json.dumps({"result": result, "jsonrpc": "2.0", "id": number}))

    def do_create_and_wait(self, number: Any, text: str, _: Any) -> None:
        self.mark(text)
        go = os.path.join(os.path.dirname(self.how["marks"]), "go")  # noqa: PTH118, PTH120
        while not os.path.exists(go):  # noqa: PTH110
            time.sleep(0.02)
        self.answer(number, f"created {text}")

    do_read_and_wait = do_create_and_wait

    def do_slow(self, *_: Any) -> None: ...

    def do_die(self, *_: Any) -> None:
        os._exit(3)

    def do_create_and_die(self, _: Any, text: str, __: Any) -> None:
        self.mark(text)
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)

    def do_flood(self, *_: Any) -> None:
        while True:
            self.log()

    def do_progress(self, number: Any, _: str, params: Any) -> None:
        token = params["_meta"]["progressToken"]
        for share in (1, 2):
            known = {"progressToken": token, "progress": share, "total": 2, "message": "half"}
            self.send(method="notifications/progress", params=known)
        self.answer(number, "done")

    def do_picture(self, number: Any, *_: Any) -> None:
        picture = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
        self.send(id=number, result={"content": [picture]})

    def do_change(self, number: Any, *_: Any) -> None:
        self.tools[0] = {**self.tools[0], "description": "Now it does something else."}
        self.send(method="notifications/tools/list_changed")
        self.answer(number, "changed")

    def do_change_and_hang(self, number: Any, *_: Any) -> None:
        self.how["page"] = 0
        self.do_change(number)

    def do_odd(self, number: Any, text: str, _: Any) -> None:
        """Say what no server should."""
        self.answer(number + 1, "of a call that nobody has made")
        self.answer("none", "of an id of another kind")
        self.send(id=None, result={})
        asked: list[Any] = []

        def answered(reply: dict[str, Any]) -> None:
            asked.append(reply["error"]["code"])
            if len(asked) == 2:
                self.answer(number, f"{text} {asked}")
                self.answer(number, "once more")

        for method, params in (("sampling/createMessage", SAMPLE), ("roots/list", {})):
            self.waiting[method] = answered
            self.send(id=method, method=method, params=params)

    def do_fork(self, number: Any, text: str, _: Any) -> None:
        """Leave a process that belongs to nobody and holds none of the streams."""
        runs, ends_at_exec = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for each in range(3):
                    os.close(each)
                words = [sys.executable, "-c", "import time; time.sleep(600)", text]
                os.execv(words[0], words)  # noqa: S606 -- a shell would change nothing
            os._exit(0)
        os.close(ends_at_exec)
        os.read(runs, 1)
        self.answer(number, "forked")

    def do_environment(self, number: Any, *_: Any) -> None:
        self.answer(number, json.dumps(dict(os.environ)))

    def do_look(self, number: Any, text: str, _: Any) -> None:
        self.answer(number, self.look(text))

    def do_connect(self, number: Any, text: str, _: Any) -> None:
        try:
            socket.create_connection(("127.0.0.1", int(text)), 2).close()
            self.answer(number, "connected")
        except OSError as error:
            self.answer(number, f"error {error.strerror}")

    def do_unknown(self, number: Any, *_: Any) -> None:
        self.refuse(number, -32603, "database is locked")

    def do_create_unfit(self, number: Any, text: str, _: Any) -> None:
        """Refuse as the SDK of TypeScript did before it made that a result (its `mcp.ts`)."""
        self.mark(text)
        why = "Invalid structured content for tool create_unfit: Required"
        self.refuse(number, -32602, f"MCP error -32602: Output validation error: {why}")

    def do_refuse(self, number: Any, *_: Any) -> None:
        self.refuse(number, -32602, "no such project")

    def look(self, path: str) -> str:
        try:
            if os.path.isdir(path):  # noqa: PTH112
                return "folder " + " ".join(sorted(os.listdir(path)))  # noqa: PTH208
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                return "file " + file.read()
        except OSError as error:
            return f"error {error.strerror}"

    def do_ask(self, number: Any, *_: Any) -> None:
        self.asked += 1
        question = f"q{self.asked}"
        schema = {
            "type": "object",
            "properties": {"title": {"type": "string"}},
            "required": ["title"],
        }

        def answered(reply: dict[str, Any]) -> None:
            result = reply.get("result", {})
            if result.get("action") != "accept":
                self.answer(number, f"nobody answered: {result.get('action')}", isError=True)
                return
            self.mark(result["content"]["title"])
            self.answer(number, f"created {result['content']['title']}")

        self.waiting[question] = answered
        params = {"mode": "form", "message": "Which title?", "requestedSchema": schema}
        self.send(id=question, method="elicitation/create", params=params)


if __name__ == "__main__":
    Server(json.loads(sys.argv[1])).run()
