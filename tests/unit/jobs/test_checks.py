"""Payloads that built-in job types refuse before a job is submitted."""

from typing import Any

import orjson
import pytest

from cortex.domain.errors import InvalidValueError
from cortex.jobs import builtin_registry

URL = "https://example.org/"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("http_request", {"url": "5"}, "url '5' is not a URL"),
    ("http_request", {"url": 5}, "payload.url must be text, got 5"),
    ("http_request", {"url": URL, "method": "FOO"}, 'payload.method must be one of "GET", "HEAD"'),
    ("http_request", {"url": URL, "expect": [200, "x"]}, "payload.expect[1] must be a whole"),
    ("http_request", {"url": URL, "timeout_s": -5}, "timeout_s must be above 0 and at most 180"),
    ("http_request", {"url": URL, "body": "a", "json": 1}, "a request has one body"),
    ("http_request", {"url": URL, "headers": {"Host": "x"}}, "header 'Host' cannot be set"),
    ("http_request", {"url": URL, "expect": [42]}, "expect has 42, which is no final answer"),
    ("webhook_dispatch", {"url": "ftp://x", "payload": 1, "secret": "env:A"}, "'ftp://x'"),
    ("webhook_dispatch", {"url": URL, "payload": 1, "secret": "clear"}, "as env:NAME"),
    ("webhook_dispatch", {"url": URL, "payload": 1, "secret": []}, "0 secrets, outside 1 to 4"),
    ("llm_generate", {"model": "m"}, "give either prompt or messages"),
    ("llm_generate", {"model": "", "prompt": "p"}, "model is empty"),
    ("llm_generate", {"model": "m", "prompt": "p", "max_tokens": 0}, "at least 1, got 0"),
    ("llm_generate", {"model": "m", "prompt": "p", "timeout_s": 1e9}, "at most 450"),
    ("send_notification", {"text": ""}, "'send_notification': text has 0 characters"),
    ("send_notification", {"text": "x", "topic": "job.failed"}, "one of the runtime's own"),
    ("execute_tool", {"tool": ""}, "tool is empty"),
    ("execute_tool", {"tool": "t", "timeout_s": 601}, "at most 600"),
]


@pytest.mark.parametrize("name, payload, message", REFUSED)
def test_a_payload_that_must_fail_is_refused(
    name: str, payload: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        builtin_registry().get(name).check_payload(orjson.dumps(payload).decode())
    assert message in caught.value.message
    assert "\n" not in caught.value.message
