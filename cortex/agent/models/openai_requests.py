"""Requests in the shapes of OpenAI's two APIs: Responses, and Chat Completions."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from cortex.agent.models.neutral import messages_for, result_text
from cortex.agent.models.repairs import tool_name
from cortex.agent.models.strict_schema import strict_schema
from cortex.domain.errors import UsageError
from cortex.domain.model import Block, Effort, ModelOptions, ModelRequest, OutputFormat

PROVIDER: Final = "openai"
MESSAGE: Final = "message"
"""Type of an own block after a text: its phase, which goes back with it."""
ITEM_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "reasoning": ("type", "id", "summary", "content", "encrypted_content"),
}
"""What the Responses API takes back of these items. Others go back as they came."""
LOW_MAX: Final = 4_096
MEDIUM_MAX: Final = 16_384
"""Tokens of thinking up to which an effort is low or medium: OpenAI knows no count of them."""
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")


# --- the Responses API


def responses_arguments(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the SDK. Raises `UsageError` for what the API does not have."""
    options = request.options
    if options.stop_sequences:
        raise UsageError(
            f"model {request.model!r}: the Responses API has no stop sequences",
            hint='leave out stop_sequences, or use an endpoint with api = "chat"',
        )
    tools = [*map(_function, request.tools), *options.server_tools]
    effort = effort_of(options)
    optional = {
        "instructions": request.system,
        "tools": tools,
        "tool_choice": _responses_choice(options) if tools else None,
        "parallel_tool_calls": None if options.parallel_calls or not tools else False,
        "temperature": options.temperature,
        "reasoning": None if effort is None else {"effort": effort},
        "text": _text(request.output, options.extra.get("text")),
        "metadata": dict(options.metadata) or None,
        "extra_body": {name: each for name, each in options.extra.items() if name != "text"}
        or None,
    }
    return {
        "model": request.model,
        "input": list(_input_items(request)),
        "max_output_tokens": request.max_tokens,
        "store": False,
        **{name: value for name, value in optional.items() if value not in (None, "", [], {})},
    }


def _input_items(request: ModelRequest) -> Iterator[dict[str, Any]]:
    """Yield the conversation, without reasoning at a message's end: what it led to must follow."""
    for role, blocks in messages_for(request.messages, PROVIDER):
        items = list(_items(role, blocks))
        while items and items[-1].get("type") == "reasoning":
            items.pop()
        yield from items


def _items(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Yield the input items of one message, in their order."""
    content: list[dict[str, Any]] = []
    for place, block in enumerate(blocks):
        match block["type"]:
            case "tool_result":
                output = _output(block)
                yield {"type": "function_call_output", "call_id": call_id(block), "output": output}
            case "tool_use":
                yield _call(block)
            case "text" if role == "assistant":
                yield _assistant(block["text"], blocks[place + 1 : place + 2])
            case "text" | "image" | "document":
                content.append(_input(block))
            case kind if kind != MESSAGE and _is_whole(block):
                fields = ITEM_FIELDS.get(kind, tuple(block))
                yield {name: block[name] for name in fields if name in block}
    if content:
        yield {"role": role, "content": content}


def _is_whole(block: Block) -> bool:
    """Return whether the API can read an item: of reasoning that it did not encrypt it has none."""
    return block["type"] != "reasoning" or any(map(block.get, ("encrypted_content", "content")))


def _assistant(text: str, following: Sequence[Block]) -> dict[str, Any]:
    phases = [each["phase"] for each in following if each["type"] == MESSAGE]
    message = {"role": "assistant", "content": text}
    return {**message, "phase": phases[0]} if phases else message


def _call(block: Block) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id(block),
        "name": tool_name(block),
        "arguments": json.dumps(block.get("input") or {}, ensure_ascii=False),
    }


def _output(block: Block) -> str | list[dict[str, Any]]:
    """Return a tool's result: text, or parts if there is an image or a document in it."""
    content = block.get("content")
    if isinstance(content, str) or not content:
        return result_text(block)
    files = [each for each in content if each.get("type") in ("image", "document")]
    if not files:
        return result_text(block)
    text = result_text(block)
    texts = [{"type": "input_text", "text": text}] if text else []
    return [*texts, *map(_input, files)]


def _input(block: Block) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "input_text", "text": block["text"]}
        case "image":
            return {"type": "input_image", "image_url": _url(block), "detail": "auto"}
        case _:
            if is_text_document(block):
                return {"type": "input_text", "text": document_text(block)}
            source = block["source"]
            if source["type"] == "url":
                return {"type": "input_file", "file_url": source["url"]}
            return {"type": "input_file", "filename": _file_name(block), "file_data": _url(block)}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", **_declared(tool), "strict": False}


def _responses_choice(options: ModelOptions) -> str | dict[str, Any] | None:
    match options.tool_choice:
        case "any":
            return "required"
        case None | "auto" | "none" as choice:
            return choice
        case name:
            return {"type": "function", "name": name}


def _text(output: OutputFormat | None, more: Any) -> Any:
    """Return what the answer's text is to be: its format, and what else `extra` says of it."""
    form = {} if output is None else {"format": {"type": "json_schema", **_schema(output)}}
    return {**more, **form} if isinstance(more, Mapping) else form or more


# --- Chat Completions


def chat_arguments(request: ModelRequest, *, is_openai: bool) -> dict[str, Any]:
    """Return the arguments of the SDK. `is_openai`: it is OpenAI's own server.

    That one takes `max_completion_tokens` from its newer models only; many others know only
    `max_tokens`.
    """
    options = request.options
    tools = [
        *({"type": "function", "function": _declared(each)} for each in request.tools),
        *options.server_tools,
    ]
    system = [{"role": "system", "content": request.system}] if request.system else []
    messages = messages_for(request.messages, PROVIDER)
    optional = {
        "stop": list(options.stop_sequences),
        "tools": tools,
        "tool_choice": _chat_choice(options) if tools else None,
        "parallel_tool_calls": None if options.parallel_calls or not tools else False,
        "temperature": options.temperature,
        "reasoning_effort": effort_of(options),
        "response_format": _response_format(request.output),
        "user": options.metadata.get("user_id"),
        "extra_body": dict(options.extra) or None,
    }
    return {
        "model": request.model,
        "messages": [*system, *(item for each in messages for item in _chat_messages(*each))],
        "max_completion_tokens" if is_openai else "max_tokens": request.max_tokens,
        "stream_options": {"include_usage": True},
        **{name: value for name, value in optional.items() if value not in (None, [])},
    }


def _chat_messages(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Yield the messages of one message: results of tools have one each, before anything else."""
    results = [each for each in blocks if each["type"] == "tool_result"]
    if role == "assistant":
        if (answer := _chat_answer(blocks)) is not None:
            yield answer
        return
    parts: list[dict[str, Any]] = []
    for each in results:
        yield {"role": "tool", "tool_call_id": call_id(each), "content": result_text(each)}
        parts += _result_files(each)
    parts += [_part(each) for each in blocks if each["type"] in ("text", "image", "document")]
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _chat_answer(blocks: Sequence[Block]) -> dict[str, Any] | None:
    text = "".join(each["text"] for each in blocks if each["type"] == "text")
    calls = [
        {
            "id": call_id(each),
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for each in blocks
        if each["type"] == "tool_use"
        for call in (_call(each),)
    ]
    if not text and not calls:
        return None
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    return {**answer, "tool_calls": calls} if calls else answer


def _result_files(block: Block) -> list[dict[str, Any]]:
    """Return the images and documents of a result as parts: a tool's message is only text."""
    content = block.get("content")
    files = [
        each
        for each in (content if isinstance(content, list) else ())
        if each.get("type") in ("image", "document")
    ]
    if not files:
        return []
    return [{"type": "text", "text": f"Of tool result {call_id(block)}:"}, *map(_part, files)]


def _part(block: Block) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": block["text"]}
        case "image":
            return {"type": "image_url", "image_url": {"url": _url(block)}}
        case _:
            if is_text_document(block):
                return {"type": "text", "text": document_text(block)}
            if block["source"]["type"] == "url":
                raise UsageError(
                    "Chat Completions takes no document by its address",
                    hint='send its content, or use an endpoint with api = "responses"',
                )
            file = {"filename": _file_name(block), "file_data": _url(block)}
            return {"type": "file", "file": file}


def _chat_choice(options: ModelOptions) -> str | dict[str, Any] | None:
    match _responses_choice(options):
        case {"name": name}:
            return {"type": "function", "function": {"name": name}}
        case choice:
            return choice


def _response_format(output: OutputFormat | None) -> dict[str, Any] | None:
    if output is None:
        return None
    return {"type": "json_schema", "json_schema": _schema(output)}


# --- what both share


def effort_of(options: ModelOptions) -> Effort | str | None:
    """Return the effort: the one that is asked for, or what a budget of thinking comes to."""
    match options.thinking:
        case "off":
            return "none"
        case int() as tokens if options.effort is None:
            return "low" if tokens <= LOW_MAX else "medium" if tokens <= MEDIUM_MAX else "high"
        case _:
            return options.effort


def call_id(block: Mapping[str, Any]) -> str:
    """Return the id of a call, or of the one that a result answers, as the APIs take it."""
    given = str(block.get("id") or block.get("tool_use_id") or "")
    if _ID.fullmatch(given):
        return given
    return f"call_{sha256(given.encode()).hexdigest()[:24]}"


def is_text_document(block: Block) -> bool:
    return block["source"]["type"] in ("text", "content")


def document_text(block: Block) -> str:
    """Return a document that is text, below its title."""
    source = block["source"]
    if source["type"] == "text":
        text = str(source["data"])
    else:
        content = source["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "\n\n".join(str(each.get("text", "")) for each in parts)
    return f"{block['title']}\n\n{text}" if block.get("title") else text


def _declared(tool: Mapping[str, Any]) -> dict[str, Any]:
    # An object without the field is refused, even if it has no properties.
    parameters = {"type": "object", "properties": {}, **(tool.get("input_schema") or {})}
    declared = {"name": tool["name"], "parameters": parameters}
    if tool.get("description"):
        declared["description"] = tool["description"]
    return declared


def _schema(output: OutputFormat) -> dict[str, Any]:
    """Return a schema with the promise that answers fit it, if OpenAI can make it."""
    strict = strict_schema(output.schema)
    is_strict = strict is not None
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", output.name)[:64] or "output"
    schema = dict(output.schema) if strict is None else strict
    return {"name": name, "schema": schema, "strict": is_strict}


def _url(block: Block) -> str:
    source = block["source"]
    match source["type"]:
        case "url":
            return str(source["url"])
        case "base64":
            return f"data:{source['media_type']};base64,{source['data']}"
        case kind:
            raise UsageError(
                f"OpenAI takes no {block['type']} whose source is {kind!r}",
                hint="send its content as base64, or its address",
            )


def _file_name(block: Block) -> str:
    return str(block.get("title") or "document.pdf")
