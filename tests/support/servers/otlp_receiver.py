"""A collector in a process of its own: decodes what it is sent as OTLP, and keeps the spans.

`python -m tests.support.servers.otlp_receiver` prints its port, then one JSON line for each span;
with `--sink` it only takes them, for measurements.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.eventually import eventually


@attrs.frozen(kw_only=True)
class Received:
    """One span, as a backend sees it."""

    trace_id: str
    id: str
    parent_id: str
    name: str
    kind: int
    began_ns: int
    ended_ns: int
    error: str | None
    attributes: dict[str, Any]
    links: list[list[str]]
    resource: dict[str, Any]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_ours = self.path == "/v1/traces"
        if "--sink" not in sys.argv and is_ours:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            _print(ExportTraceServiceRequest.FromString(body))
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name
        pass


def _print(request: ExportTraceServiceRequest) -> None:
    lines = []
    for by_resource in request.resource_spans:
        resource = _plain(by_resource.resource.attributes)
        for by_scope in by_resource.scope_spans:
            for span in by_scope.spans:
                received = Received(
                    trace_id=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    kind=span.kind,
                    began_ns=span.start_time_unix_nano,
                    ended_ns=span.end_time_unix_nano,
                    error=span.status.message
                    if span.status.code == span.status.STATUS_CODE_ERROR
                    else None,
                    attributes=_plain(span.attributes),
                    links=[[each.trace_id.hex(), each.span_id.hex()] for each in span.links],
                    resource=resource,
                )
                lines.append(json.dumps(attrs.asdict(received)) + "\n")
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, which)


@attrs.define
class Collector:
    """The receiver, as a test sees it."""

    port: int
    spans: list[Received] = attrs.field(factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{self.port}"}

    def until(self, *names: str) -> list[Received]:
        """Wait until spans of all these names have come; return all spans."""
        eventually(lambda: {*names} <= {each.name for each in self.spans}, what=f"spans {names}")
        return list(self.spans)


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a receiver."""
    command = [sys.executable, "-m", "tests.support.servers.otlp_receiver"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        receiver = Collector(int(process.stdout.readline()))
        lines = process.stdout

        def read() -> None:
            for line in lines:
                receiver.spans.append(Received(**json.loads(line)))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield receiver
        finally:
            process.kill()
            reader.join()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
