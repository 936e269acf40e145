"""Requests to a model and its responses, as plain values without any SDK."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, Self

from attrs import asdict, field, frozen

from cortex.domain.usage import Usage

Block = dict[str, Any]
"""A content block as plain JSON, in the shapes of the Messages API: every client translates them.

text, tool_use, tool_result, image and document are neutral: any provider gets them. A block that
only one provider understands (signed thinking, a search by the server) names it under `provider`;
without that key it is Anthropic's. Clients of others leave it out.
"""
PROVIDER: Final = "provider"
"""Key of a block that only the named provider understands."""

CONTAINER: Final = "container"
"""Type of a block of Anthropic's alone: where its tools run code in this conversation."""

INVALID_INPUT: Final = "invalid_input"
"""Key of a recorded tool call: the raw text in place of arguments."""
ENDED: Final = frozenset({"end_turn", "tool_use"})
"""Stop reasons of an answer that the model itself ended: nothing of it is cut."""


MANY_IMAGES: Final = 20


def container_block(container_id: str, expires_at: str | None) -> Block:
    """Return the block before an answer that names the container of its code."""
    block = {"type": CONTAINER, "id": container_id}
    return block if expires_at is None else {**block, "expires_at": expires_at}


class CacheTtl(StrEnum):
    """How long the provider is to keep the prefix of a prompt."""

    OFF = "off"
    FIVE_MINUTES = "5m"
    HOUR = "1h"


@frozen(kw_only=True)
class Capabilities:
    """What a model can take, as far as its client knows: an API may refuse more."""

    tools: bool = True
    images: bool = True
    gifs: bool = True
    """GIF images, if it takes images."""
    documents: bool = True
    """PDF files."""
    output: bool = True
    """`ModelRequest.output`: False if a caller has to ask for JSON by a tool of its own."""
    batches: bool = False
    """`ModelRequest.batch`."""
    optional_max: int | None = None
    """Properties of an output that may be missing, in its mode; None: as many as its API takes."""
    unions_max: int | None = None
    """Parts of an output that are of one of several types, in its mode."""
    images_max: int | None = None
    """Of one request; None: as many as its API takes."""
    pages_max: int | None = None
    """Of all PDF files of one request."""
    side_of_many: int | None = None
    """Pixels on a side of each image in a request with more than `MANY_IMAGES`."""

    @property
    def are_all(self) -> bool:
        """Whether it takes each kind of request."""
        return self.tools and self.images and self.documents and self.output


Effort = Literal["low", "medium", "high", "xhigh", "max"]
Thinking = int | Literal["adaptive", "off", False]
"""Tokens, or whether the model decides itself. YAML reads the word off as False."""


def thinking_of(value: Thinking | None) -> Thinking | None:
    """Return the option of that name, `off` for False."""
    return "off" if value is False else value


@frozen(kw_only=True)
class ModelOptions:
    """What a caller may ask of a model beside its prompt. None: the provider's own default."""

    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    tool_choice: str | None = None
    """`auto`, `any`, `none`, or the name of the one tool that the model must call."""
    parallel_calls: bool = True
    """False: at most one tool call in an answer."""
    thinking: Thinking | None = field(default=None, converter=thinking_of)
    """The tokens that the model may think with, `adaptive` (it decides itself) or `off`."""
    effort: Effort | None = None
    server_tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the provider runs itself, as it defines them."""
    metadata: Mapping[str, Any] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)
    """Fields of the provider's request that Cortex does not know; sent as they are."""

    def to_json(self) -> dict[str, Any]:
        """Return only what is set: requests without options keep their digests."""
        unset = ModelOptions()
        return asdict(self, filter=lambda each, value: value != getattr(unset, each.name))


@frozen(kw_only=True)
class OutputFormat:
    """The JSON that an answer must be."""

    name: str
    schema: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "schema": dict(self.schema)}


@frozen(kw_only=True)
class ModelRequest:
    """One call. `messages` and `tools` are dicts in the shapes of the Messages API: see `Block`.

    `model` is `PROVIDER:MODEL`, or the name of a model alone: then the provider is Anthropic.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    options: ModelOptions = ModelOptions()
    output: OutputFormat | None = None
    cache: CacheTtl = CacheTtl.OFF
    """Not part of the request's identity: another one changes the price, not the answer."""
    batch: bool = False
    """It may wait for up to a day in a batch of the provider, at half the price. Not part of the
    identity: the answer is the same."""
    fallback: Sequence[str] = ()
    """Models that are asked in this order if the one before cannot answer. Not part of the
    identity, so that it can be changed under jobs that wait for an outage to end."""

    def to_json(self) -> dict[str, Any]:
        """Return the request without unset fields: equal values are equal requests."""
        optional = {
            "system": self.system,
            "tools": list(self.tools),
            "options": self.options.to_json(),
            "output": None if self.output is None else self.output.to_json(),
        }
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": list(self.messages),
            **{name: value for name, value in optional.items() if value},
        }


@frozen(kw_only=True)
class Substitution:
    """Another model has answered than the one that was asked for."""

    model: str
    """The one that answered, under the name of the request."""
    reason: str
    """Why the one that was asked for did not, in one line."""

    def to_json(self) -> dict[str, str]:
        return {"model": self.model, "reason": self.reason}


@frozen(kw_only=True)
class ModelResponse:
    """A complete answer with the model's own stop reason.

    `content` contains blocks as the API sends them; the loop uses text and tool_use, the others
    (thinking …) go back to the model unchanged. A tool call whose input was not a JSON object has
    `input` {} and the raw text under "invalid_input", which is empty if no arguments arrived.
    """

    model: str
    content: tuple[Block, ...]
    stop_reason: str
    usage: Usage
    message_id: str
    substitution: Substitution | None = None
    """Set if a fallback has answered."""

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def tool_calls(self) -> tuple[Block, ...]:
        """The tool_use blocks, in the model's order."""
        return tuple(block for block in self.content if block["type"] == "tool_use")

    def is_cut(self, call: Block) -> bool:
        """Return whether the arguments of a tool call did not arrive whole: it must not run.

        No text of an object is whole before its last brace, so arguments that parse are whole.
        Empty ones are also what a call begins with: they count only if the model ended its answer.
        """
        raw = call.get(INVALID_INPUT)
        if self.stop_reason in ENDED:
            return raw == ""
        return raw is not None or not call.get("input")

    def as_message(self) -> dict[str, Any]:
        """Return the assistant message for the next request, with only what the API takes."""
        content = [{k: v for k, v in each.items() if k != INVALID_INPUT} for each in self.content]
        return {"role": "assistant", "content": content}

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`."""
        plain = {
            "model": self.model,
            "content": list(self.content),
            "stop_reason": self.stop_reason,
            "usage": self.usage.to_json(),
            "message_id": self.message_id,
        }
        if self.substitution is not None:
            plain["substitution"] = self.substitution.to_json()
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        return cls(
            model=plain["model"],
            content=tuple(plain["content"]),
            stop_reason=plain["stop_reason"],
            usage=Usage.from_json(plain["usage"]),
            message_id=plain["message_id"],
            substitution=Substitution(**other) if (other := plain.get("substitution")) else None,
        )
