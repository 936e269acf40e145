"""Which circuit breaker guards a call of a built-in tool."""

import pytest

from cortex.agent.tools.http_request import http_request
from cortex.agent.tools.list_files import list_files
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.tool import AnyTool
from cortex.agent.tools.write_file import write_file


@pytest.mark.parametrize(
    "url, name",
    [
        ("https://Example.ORG:8443/a?b=c", "http:example.org"),
        ("http://bücher.example/", "http:xn--bcher-kva.example"),
        ("http://127.0.0.1/", "http:127.0.0.1"),
        ("http://[::1]:80/", "http:::1"),
        ("ftp://example.org/", None),
        ("no url", None),
        ("http://user:secret@example.org/", None),
        (f"http://{'a.' * 200}org/", None),
    ],
)
def test_a_request_stands_behind_its_host(url: str, name: str | None) -> None:
    assert http_request.breaker_name(http_request.parse({"url": url})) == name


@pytest.mark.parametrize(
    "tool, given",
    [
        (list_files, {}),
        (read_file, {"path": "a"}),
        (write_file, {"path": "a", "content": ""}),
        (run_command, {"argv": ["true"]}),
    ],
)
def test_local_tools_have_no_breaker(tool: AnyTool, given: dict[str, object]) -> None:
    assert tool.breaker_name(tool.parse(given)) is None
