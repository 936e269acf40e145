"""The scripted model refuses what the Messages API refuses, and nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from cortex.demo.validation import refusal_of

USER = {"role": "user", "content": "hello"}


def use(id_: Any = "t1", name: str = "look", given: Any = None, **more: Any) -> dict[str, Any]:
    given = {} if given is None else given
    return {"type": "tool_use", "id": id_, "name": name, "input": given, **more}


def result(id_: str = "t1", content: Any = "sunny", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def given(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


THOUGHT = {"type": "thinking", "thinking": "so", "signature": "c2ln"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, USER],
        [USER, said(text("I look"), use()), given(result())],
        [USER, said(THOUGHT, use("a"), use("b")), given(result("b"), result("a"), text("go on"))],
        [USER, said(use(caller={"type": "direct"})), given(result(content=""))],
        [USER, said(text("half"))],
        [USER, said()],
    ],
)
def test_valid_conversation_is_taken(messages: Sequence[dict[str, Any]]) -> None:
    assert refusal_of(request(*messages)) is None


@pytest.mark.parametrize(
    "messages, why",
    [
        ([], "at least one message"),
        ([said(text("hello"))], "first message must have the role user"),
        ([USER, {"role": "system", "content": "x"}], "neither user nor assistant"),
        ([USER, given()], "non-empty content"),
        ([USER, said(), USER], "non-empty content"),
        ([USER, said(text("")), USER], "text content blocks must be non-empty"),
        ([{"role": "user", "content": " \n"}], "non-whitespace text"),
        ([USER, said(text("half "))], "trailing whitespace"),
        ([USER, said(text("a"), THOUGHT), USER], "cannot be thinking"),
        ([USER, said({**THOUGHT, "signature": ""}, text("a")), USER], "signature: field required"),
        ([USER, said(use()), USER], "tool_use ids without tool_result blocks: t1"),
        ([USER, said(use("a"), use("b")), given(result("a"))], "without tool_result blocks: b"),
        ([USER, given(result())], "unexpected tool_use_id: t1"),
        ([USER, said(use()), given(result(), result())], "a single result"),
        ([USER, said(use()), given(text("well"), result())], "must come first"),
        ([USER, said(use("a"), use("a")), given(result("a"))], "must be unique: a"),
        ([USER, said(use()), given(result()), said(use()), given(result())], "must be unique: t1"),
        ([USER, said(use("a b")), given(result("a b"))], "id: 'a b' should match"),
        ([USER, said(use(name="a.b")), given(result())], "name: 'a.b' should match"),
        ([USER, said(use(given=[1])), given(result())], "input: should be an object"),
        ([USER, said(use(index=0)), given(result())], "extra inputs are not permitted: index"),
        ([USER, said(use()), given(result(content="", is_error=True))], "cannot be empty if"),
        ([USER, said(use()), given(result(content=[text("")]))], "must be non-empty"),
    ],
)
def test_request_that_the_api_refuses_is_refused(
    messages: Sequence[dict[str, Any]], why: str
) -> None:
    refusal = refusal_of(request(*messages))
    assert refusal is not None
    assert why in refusal


def test_fields_beside_the_messages_are_checked() -> None:
    assert "max_tokens" in (refusal_of(request(USER, max_tokens=0)) or "")
    assert "tools.0.name" in (refusal_of(request(USER, tools=[{"name": "a.b"}])) or "")
