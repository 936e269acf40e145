"""Inputs of a flow choose neither a server nor a rule, and no text of one holds up a pod."""

import time
from contextlib import suppress
from typing import Any

import pytest

from cortex.domain.errors import CortexError
from cortex.durable.structuring import MisfitError
from cortex.flows.functions import ExpressionError
from cortex.flows.spec import FlowSpec
from cortex.flows.step_kinds import KINDS
from cortex.flows.template import filled, parse_text

URL = (("url",),)
MEGABYTE = 1_000_000


def stored(**step: Any) -> FlowSpec:
    return FlowSpec.from_json(
        {"name": "flow", "inputs": {"x": {}}, "steps": [{"name": "step", **step}]}
    )


X = "${{ inputs.x }}"
VALUES: dict[str, tuple[str, str]] = {
    "plain": ("2026-01-31", "2026-01-31"),
    "segment": ("../../admin", "..%2F..%2Fadmin"),
    "query": ("1&admin=true#", "1%26admin%3Dtrue%23"),
    "host": ("@evil.example/", "%40evil.example%2F"),
    "other server": ("//evil.example", "%2F%2Fevil.example"),
    "backslash": ("\\\\evil.example", "%5C%5Cevil.example"),
    "scheme": ("file:///etc/passwd", "file%3A%2F%2F%2Fetc%2Fpasswd"),
    "header": ("a\r\nHost: evil.example", "a%0D%0AHost%3A%20evil.example"),
    "encoded": ("%2e%2e%2f", "%252e%252e%252f"),
    "unicode": ("ü\u202e", "%C3%BC%E2%80%AE"),
    "half a pair": ("\ud800", "%3F"),
}


@pytest.mark.parametrize("given, encoded", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    "around", ["https://erp.example/a/{}/b", "https://erp.example:8443/?a={}&b=c"]
)
def test_a_value_stays_in_its_place_of_a_url(around: str, given: str, encoded: str) -> None:
    url = filled({"url": around.format(X)}, {"inputs": {"x": given}}, urls=URL)["url"]
    assert url == around.format(encoded)


@pytest.mark.parametrize(
    "url",
    [f"https://erp.example/a/{X}/b", f"https://erp.example/a/.{X}", f"https://erp.example/{X}?q"],
)
@pytest.mark.parametrize("dots", [".", ".."])
def test_a_value_does_not_leave_its_folder(url: str, dots: str) -> None:
    value = "." if url.endswith(f".{X}") else dots
    with pytest.raises(ExpressionError, match="leaves its folder"):
        filled({"url": url}, {"inputs": {"x": value}}, urls=URL)


@pytest.mark.parametrize(
    "url",
    [
        X,
        f" {X} ",
        f"{X}/list",
        f"{X}://erp.example/",
        f"https://{X}/list",
        f"https://erp.{X}/list",
        f"https://erp.example:{X}/list",
        f"https://erp.example{X}",
        f"https://{X}@erp.example/",
        f"https://user:{X}@erp.example/",
        f"https://erp.example\\{X}",
        f"https:/{X}",
        f"//erp.example/{X}",
        f"/{X}",
        f"$${{{{ https://erp.example/{X}",
    ],
)
@pytest.mark.parametrize("uses", ["http", "tool"])
def test_a_server_is_written_out(url: str, uses: str) -> None:
    given: dict[str, Any] = {"url": url}
    if uses == "tool":
        given = {"tool": "http_request", "arguments": given}
    with pytest.raises((MisfitError, CortexError), match=r"url.*scheme, host and port written out"):
        stored(uses=uses, **{"with": given})


AROUND: dict[str, Any] = {
    "whole": X,
    "blanks around": f" {X}\n",
    "in a list": [X],
    "a list as its URL": {"url": [X]},
    "an object as its URL": {"url": {"x": X}},
}


@pytest.mark.parametrize("arguments", AROUND.values(), ids=AROUND)
def test_an_input_cannot_be_the_whole_request(arguments: Any) -> None:
    """Neither in a flow that is applied, nor in one that was stored before."""
    given = {"tool": "http_request", "arguments": arguments}
    with pytest.raises((MisfitError, CortexError), match=r"arguments.* must be (written out|a)"):
        stored(uses="tool", **{"with": given})
    if not isinstance(arguments, str):
        return
    evil = {"inputs": {"x": {"url": "https://evil.example/"}}}
    with pytest.raises(ExpressionError, match="arguments would choose the URL"):
        filled(given, evil, urls=KINDS["tool"].urls(given))


RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tool", {"tool": X}),
    "part of a tool": ("tool", {"tool": f"send_{X}"}),
    "risk": ("approve", {"risk": X}),
    "people": ("approve", {"people": X}),
    "agent": ("agent", {"agent": X, "prompt": "p"}),
    "folder": ("agent", {"agent": "clerk", "folder": f"/srv/{X}", "prompt": "p"}),
}


@pytest.mark.parametrize("uses, given", RULES.values(), ids=RULES)
def test_a_rule_is_written_out(uses: str, given: dict[str, Any]) -> None:
    with pytest.raises(CortexError) as caught:
        stored(uses=uses, **{"with": given})
    field, value = next((key, value) for key, value in given.items() if X in str(value))
    assert f"{field} must be written out" in caught.value.message
    assert value in caught.value.message


TEXTS = {
    "unclosed": "${{" * (MEGABYTE // 3),
    "unclosed and spaced": "${{ " * (MEGABYTE // 4),
    "closed at the end": "${{" * (MEGABYTE // 3) + "}}",
    "escaped": "$${{" * (MEGABYTE // 4),
    "escaped, then open": "$${{" * (MEGABYTE // 4) + "${{",
    "many": "${{1}}" * (MEGABYTE // 6),
    "closers": "}}" * (MEGABYTE // 2) + "${{",
    "dollars": "$" * MEGABYTE + "{{",
    "quotes": "${{'" + "\\'" * (MEGABYTE // 2) + "}}",
    "open in a text": "${{ '" + "${{" * (MEGABYTE // 3),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_hostile_text_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    with suppress(ExpressionError):
        parse_text(text)
    assert time.process_time() - began < 0.5
