"""What the APIs of OpenAI and Google refuse, with their own kinds of messages.

OpenAI: the reference of POST /v1/responses and /v1/chat/completions (fields, items, roles), the
guides on function calling (each call has one output, names and ids) and on structured outputs
(strict mode closes each object and requires all of its properties), on reasoning items (each is
followed by the item that it led to). Google: the reference of models.generateContent (fields,
roles), and the guides on function calling (as many responses as calls) and on thought signatures
(the first call of a step has one).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.genai import types

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RESPONSES: Final = frozenset(
    {
        *("input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls"),
        *("reasoning", "service_tier", "store", "stream", "temperature", "text", "tool_choice"),
        *("tools", "top_p", "truncation"),
    }
)
CHAT: Final = frozenset(
    {
        *("max_completion_tokens", "max_tokens", "messages", "metadata", "model"),
        *("parallel_tool_calls", "reasoning_effort", "response_format", "seed", "stop", "stream"),
        *("stream_options", "temperature", "tool_choice", "tools", "top_p", "user"),
    }
)
ITEMS: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset({"type", "role", "content", "phase"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "id", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "web_search_call": frozenset({"type", "id", "status", "action"}),
}
EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
GENERATE: Final = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
)


def responses_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the Responses API refuses a request."""
    for name in request.keys() - RESPONSES:
        yield f"Unknown parameter: '{name}'."
    names = {each.get("name") for each in request.get("tools", ()) if each["type"] == "function"}
    yield from _tools(request.get("tools", ()), request.get("tool_choice"), names)
    effort = (request.get("reasoning") or {}).get("effort")
    if effort is not None and effort not in EFFORTS:
        yield f"Invalid value: '{effort}'. Supported values are: {sorted(EFFORTS)}"
    form = (request.get("text") or {}).get("format")
    if form is not None:
        yield from _format(form)
    yield from _items(request["input"])


def chat_problems(request: Mapping[str, Any]) -> Iterator[str]:  # noqa: C901 -- a list of rules
    """Yield why Chat Completions refuses a request."""
    for name in request.keys() - CHAT:
        yield f"Unrecognized request argument supplied: {name}"
    tools = [{**each["function"], "type": "function"} for each in request.get("tools", ())]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        choice = {"type": "function", **choice["function"]}
    yield from _tools(tools, choice, {each["name"] for each in tools})
    form = request.get("response_format")
    if form is not None and form["type"] == "json_schema":
        yield from _format({**form["json_schema"], "type": "json_schema"})
    waiting: list[str] = []
    for place, message in enumerate(request["messages"]):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield "messages with role 'tool' must be a response to a preceding 'tool_calls'."
            else:
                waiting.remove(message["tool_call_id"])
            content = message["content"]
            if not isinstance(content, str) and any(each["type"] != "text" for each in content):
                yield f"messages[{place}].content: tool messages support only text."
            continue
        if waiting:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages "
                f"responding to each 'tool_call_id'. Missing: {', '.join(waiting)}"
            )
        if role == "assistant":
            calls = message.get("tool_calls") or ()
            waiting = [each["id"] for each in calls]
            yield from _calls({"call_id": each["id"], **each["function"]} for each in calls)
            if not calls and not message.get("content"):
                yield f"Invalid value for 'content': expected a string, got null ({place})."
    if waiting:
        yield f"'tool_call_ids' did not have response messages: {', '.join(waiting)}"


def generate_problems(request: Mapping[str, Any], *, needs_signatures: bool) -> Iterator[str]:
    """Yield why the Gemini API refuses a request."""
    yield from _misfits(request)
    for name in request.keys() - GENERATE:
        yield f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    config = request.get("generationConfig", {})
    if len(config.get("thinkingConfig", {})) > 1:
        yield "You can only set only one of thinking budget and thinking level."
    calls = 0
    for place, content in enumerate(request["contents"]):
        if content["role"] not in ("user", "model"):
            yield "Please use a valid role: user, model."
        parts = content["parts"]
        if not parts:
            yield f"* GenerateContentRequest.contents[{place}].parts: must not be empty"
        results = sum("functionResponse" in each for each in parts)
        if results != calls:
            yield (
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        made = [each for each in parts if "functionCall" in each]
        calls = len(made)
        if made and needs_signatures and not made[0].get("thoughtSignature"):
            yield "Function call is missing a thought_signature in functionCall parts."


def _misfits(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the SDK's own types refuse: unknown fields and wrong values."""
    shapes: dict[str, Any] = {"contents": types.Content, "tools": types.Tool}
    values: list[tuple[Any, Any]] = [
        (shapes[name], each) for name in shapes for each in request.get(name, ())
    ]
    values.append((types.GenerationConfig, request.get("generationConfig", {})))
    values.append((types.ToolConfig, request.get("toolConfig", {})))
    for shape, value in values:
        try:
            shape.model_validate_json(json.dumps(value))
        except ValueError as error:
            yield f"Invalid JSON payload received. {' '.join(str(error).split())}"


def _tools(tools: Sequence[Mapping[str, Any]], choice: Any, names: set[Any]) -> Iterator[str]:
    for each in tools:
        if each["type"] == "function" and not NAME.fullmatch(each["name"]):
            yield f"Invalid 'tools.name': {each['name']!r} does not match '^[a-zA-Z0-9_-]+$'."
        if each["type"] == "function" and "properties" not in each["parameters"]:
            yield "Invalid schema for function: object schema missing properties."
        if each.get("strict"):
            yield from _strict(each["parameters"], ())
    if isinstance(choice, dict) and choice["name"] not in names:
        yield f"Tool choice '{choice['name']}' not found in 'tools' parameter."
    elif isinstance(choice, str) and choice not in ("auto", "none", "required"):
        yield f"Invalid value: '{choice}'."


def _format(form: Mapping[str, Any]) -> Iterator[str]:
    if not NAME.fullmatch(form["name"]):
        yield f"Invalid 'format.name': {form['name']!r}"
    if form.get("strict"):
        if form["schema"].get("type") != "object":
            yield "Invalid schema for response_format: schema must be of type 'object'."
        yield from _strict(form["schema"], ())


def _strict(schema: Any, path: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if not schema.keys() & {"type", "anyOf", "$ref"}:
        yield f"Invalid schema: In context={path}, schema must have a 'type' key."
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"Invalid schema: In context={path}, 'additionalProperties' must be false."
        if set(schema.get("required", ())) != set(schema.get("properties", {})):
            yield f"Invalid schema: In context={path}, 'required' must include every key."
    for name, each in (*schema.get("properties", {}).items(), *schema.get("$defs", {}).items()):
        yield from _strict(each, (*path, name))
    yield from _strict(schema.get("items"), (*path, "items"))
    for each in schema.get("anyOf", ()):
        yield from _strict(each, path)
    for name in ("allOf", "not", "oneOf", "patternProperties", "uniqueItems", "title", "default"):
        if name in schema:
            yield f"Invalid schema: In context={path}, '{name}' is not permitted."


def _items(items: Any) -> Iterator[str]:  # noqa: C901, PLR0912 -- a case for each type of item
    open_calls: list[str] = []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind not in ITEMS:
            yield f"Invalid value: '{kind}'. Supported values are: {sorted(ITEMS)}"
            continue
        for name in item.keys() - ITEMS[kind]:
            yield f"Unknown parameter: 'input[{place}].{name}'."
        match kind:
            case "message":
                yield from _message(place, item)
            case "function_call":
                yield from _calls([item])
                open_calls.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in open_calls:
                    yield f"No tool call found for call_id {item['call_id']}."
                else:
                    open_calls.remove(item["call_id"])
            case "reasoning":
                if not item.get("encrypted_content"):
                    yield (
                        f"Item with id '{item['id']}' not found. Items are not persisted when "
                        "`store` is set to false."
                    )
                following = items[place + 1 : place + 2]
                if not following or following[0].get("role") == "user":
                    yield (
                        f"Item '{item['id']}' of type 'reasoning' was provided without its "
                        "required following item."
                    )
            case _:
                pass
    for each in open_calls:
        yield f"No tool output found for function call {each}."


def _message(place: int, item: Mapping[str, Any]) -> Iterator[str]:
    content = item["content"]
    if isinstance(content, str):
        return
    allowed = {"input_text", "input_image", "input_file"}
    if item["role"] == "assistant":
        allowed = {"output_text", "refusal"}
    for index, part in enumerate(content):
        if part["type"] not in allowed:
            yield f"Invalid value: '{part['type']}' ('input[{place}].content[{index}]')."
        if part["type"] == "input_image" and not part["image_url"].startswith(("data:", "http")):
            yield f"Invalid 'input[{place}].content[{index}].image_url'."


def _calls(calls: Any) -> Iterator[str]:
    for each in calls:
        if not ID.fullmatch(each["call_id"]):
            yield f"Invalid 'call_id': {each['call_id']!r}: expected at most 64 characters."
        if not NAME.fullmatch(each["name"]):
            yield f"Invalid 'name': {each['name']!r} does not match '^[a-zA-Z0-9_-]+$'."
        if not isinstance(each["arguments"], str):
            yield "Invalid type for 'arguments': expected a string."
