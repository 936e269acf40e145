"""Requests in the shapes of the Gemini API."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cortex.agent.models.neutral import messages_for, result_text
from cortex.agent.models.openai_requests import document_text, is_text_document
from cortex.agent.models.repairs import tool_name
from cortex.domain.errors import UsageError
from cortex.domain.model import Block, ModelOptions, ModelRequest

PROVIDER: Final = "google"
SIGNATURE: Final = "thought_signature"
"""Type of an own block: the signature of the part that follows it, or of none."""
FOREIGN_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""`skip_thought_signature_validator`: what the API documents for calls that another model made."""
_WITHOUT_VALIDATION: Final = re.compile(r"(?:models/)?gemini-[12](?:\.\d)?-.*")
"""Models that need no signatures: that value is documented for Gemini 3 and later ones."""
LEVELS: Final[Mapping[str, str]] = {
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
DYNAMIC: Final = -1
"""A budget of thinking that the model decides itself."""
_MODES: Final[Mapping[str, str]] = {"auto": "AUTO", "any": "ANY", "none": "NONE"}


def _contents(request: ModelRequest) -> list[dict[str, Any]]:
    names = _Names()
    own = None if _WITHOUT_VALIDATION.fullmatch(request.model) else FOREIGN_SIGNATURE
    return [
        {"role": "model" if role == "assistant" else "user", "parts": parts}
        for role, blocks in messages_for(request.messages, PROVIDER)
        if (parts := list(_parts(role, blocks, names, own)))
    ]


def body_of(request: ModelRequest) -> dict[str, Any]:
    """Return the JSON of a request. Raises `UsageError` for what the API does not take."""
    options = request.options
    tools = [*_functions(request), *(dict(each) for each in options.server_tools)]
    system = {"parts": [{"text": request.system}]} if request.system else None
    optional = {
        "systemInstruction": system,
        "tools": tools or None,
        "toolConfig": _tool_config(options) if request.tools else None,
    }
    body = {
        "contents": _contents(request),
        "generationConfig": _generation(request),
        **{name: value for name, value in optional.items() if value is not None},
    }
    return _merged(body, options.extra)


def _generation(request: ModelRequest) -> dict[str, Any]:
    options = request.options
    optional = {
        "temperature": options.temperature,
        "stopSequences": list(options.stop_sequences) or None,
        "thinkingConfig": _thinking(options),
        **_output(request),
    }
    return {
        "maxOutputTokens": request.max_tokens,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body with further fields, also inside its objects."""
    fresh = dict(body)
    for name, value in extra.items():
        known = fresh.get(name)
        is_object = isinstance(known, Mapping) and isinstance(value, Mapping)
        fresh[name] = _merged(known or {}, value) if is_object else value
    return fresh


class _Names:
    """The names of calls by their ids: a result needs the name."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, block: Block) -> str:
        self._names[str(block.get("id"))] = name = tool_name(block)
        return name

    def of(self, block: Block) -> str:
        return self._names.get(str(block.get("tool_use_id")), "unnamed")


def _parts(
    role: str, blocks: Sequence[Block], names: _Names, own: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the parts of a message; the first call of an answer must have a signature.

    `own`: what is sent for a call that has none.
    """
    signature: str | None = None
    is_first = True
    for block in blocks:
        if block["type"] == SIGNATURE:
            if signature is not None:
                yield {"text": "", "thoughtSignature": signature}
            signature = block["signature"]
            continue
        if block["type"] == "tool_use" and is_first:
            signature, is_first = signature or own, False
        part = _part(role, block, names)
        yield part if signature is None else {**part, "thoughtSignature": signature}
        signature = None
        yield from _result_files(block)
    if signature is not None:
        yield {"text": "", "thoughtSignature": signature}


def _part(role: str, block: Block, names: _Names) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "tool_use":
            call = {"id": block["id"], "name": names.add(block), "args": block.get("input") or {}}
            return {"functionCall": call}
        case "tool_result":
            key = "error" if block.get("is_error") else "output"
            plain = {**block, "is_error": False}
            response = {
                "id": block["tool_use_id"],
                "name": names.of(block),
                "response": {key: result_text(plain)},
            }
            return {"functionResponse": response}
        case "image" | "document":
            return _file(block)
        case kind:
            raise UsageError(f"the Gemini API takes no block of type {kind!r} from {role}")


def _file(block: Block) -> dict[str, Any]:
    if block["type"] == "document" and is_text_document(block):
        return {"text": document_text(block)}
    source = block["source"]
    match source["type"]:
        case "base64":
            return {"inlineData": {"mimeType": source["media_type"], "data": source["data"]}}
        case "url":
            kind = "application/pdf" if block["type"] == "document" else "image/*"
            mime_type = source.get("media_type", kind)
            return {"fileData": {"mimeType": mime_type, "fileUri": source["url"]}}
        case kind:
            raise UsageError(
                f"the Gemini API takes no {block['type']} whose source is {kind!r}",
                hint="send its content as base64, or its address",
            )


def _result_files(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the images and documents of a result, which its JSON cannot hold."""
    content = block.get("content")
    if block["type"] != "tool_result" or not isinstance(content, list):
        return
    for each in content:
        if each.get("type") in ("image", "document"):
            yield _file(each)


def _functions(request: ModelRequest) -> list[dict[str, Any]]:
    declared = [
        {
            "name": tool["name"],
            "description": tool.get("description") or tool["name"],
            "parametersJsonSchema": tool.get("input_schema") or {"type": "object"},
        }
        for tool in request.tools
    ]
    return [{"functionDeclarations": declared}] if declared else []


def _tool_config(options: ModelOptions) -> dict[str, Any] | None:
    choice = options.tool_choice
    if choice is None:
        return None
    if choice in _MODES:
        return {"functionCallingConfig": {"mode": _MODES[choice]}}
    return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice]}}


def _thinking(options: ModelOptions) -> dict[str, Any] | None:
    """Return the budget if there is one, else the level: the API takes only one of them."""
    match options.thinking:
        case "off":
            return {"thinkingBudget": 0}
        case "adaptive" if options.effort is None:
            return {"thinkingBudget": DYNAMIC}
        case int() as tokens:
            return {"thinkingBudget": tokens}
        case _:
            effort = options.effort
            return None if effort is None else {"thinkingLevel": LEVELS[effort]}


def _output(request: ModelRequest) -> dict[str, Any]:
    if request.output is None:
        return {}
    schema = dict(request.output.schema)
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}
