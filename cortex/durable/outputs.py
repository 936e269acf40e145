"""Structured output: the JSON that an answer of a model must be, and the value that it becomes.

The schema goes to the provider; the answer is checked here in any case, since not every provider
holds a model to it, and none to bounds and to the validators of classes.
"""

import contextlib
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, get_args

import attrs
import orjson

from cortex.domain.errors import CortexError, InvalidOutputError, UsageError
from cortex.domain.model import ModelRequest, ModelResponse, OutputFormat
from cortex.domain.output_schema import (
    VALUE,
    OutputSchemaError,
    StrictSchema,
    check_answer,
    strict,
)
from cortex.durable.class_fields import has_fields
from cortex.durable.codec import StepInput, input_of
from cortex.durable.json_schema import (
    Schema,
    UnsupportedTypeError,
    fields_of,
    model_schema,
    object_of,
    schema_of,
)
from cortex.durable.pausing import Ask
from cortex.durable.pydantic_models import is_model
from cortex.durable.structuring import LISTED_MAX, MisfitError, structure, unstructurable

NAME: Final = "answer"
NAME_CHARS_MAX: Final = 64
COMPLETE: Final = frozenset({"end_turn", "stop_sequence"})
"""Stop reasons of an answer that is whole."""
_FENCED: Final = re.compile(r"```[a-z]*\s*\n(.*)\n\s*```", re.DOTALL)
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


class UnfitAnswerError(ValueError):
    """An answer that is not what was asked for; the text names the fields."""


@attrs.frozen(kw_only=True)
class Output:
    """What an answer must be."""

    format: OutputFormat
    _is_wrapped: bool
    _convert: Callable[[Any], Any]
    """Returns the value of an answer's JSON; raises `UnfitAnswerError`."""

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any], *, name: str = NAME) -> "Output":
        """Return the output for a JSON schema. Raises `OutputSchemaError`."""
        made = strict(schema)

        def checked(value: Any) -> Any:
            if wrong := check_answer(schema, value):
                raise UnfitAnswerError("; ".join(wrong[:LISTED_MAX]))
            return value

        return cls._made(made, checked, name)

    @classmethod
    def of_type(cls, hint: Any) -> "Output":
        """Return the output for a type of Python. Raises `UsageError`."""
        name = NAME if get_args(hint) else getattr(hint, "__name__", NAME)
        try:
            made = strict(
                schema_of(hint, lambda each: _of_class(each, ())), is_checked_elsewhere=True
            )
        except (UnsupportedTypeError, OutputSchemaError) as error:
            raise UsageError(f"output {_shown(hint)}: {error}") from error
        if (bad := unstructurable(hint)) is not None:
            raise UsageError(f"output {_shown(hint)} cannot be made from JSON: {_shown(bad)}")

        def converted(value: Any) -> Any:
            try:
                return structure(value, hint)
            except MisfitError as misfit:
                raise UnfitAnswerError(_problems(misfit)) from misfit

        return cls._made(made, converted, name)

    @classmethod
    def _made(cls, made: StrictSchema, convert: Callable[[Any], Any], name: str) -> "Output":
        usable = _NOT_IN_NAMES.sub("_", name)[:NAME_CHARS_MAX] or NAME
        return cls(
            format=OutputFormat(name=usable, schema=made.schema),
            is_wrapped=made.is_wrapped,
            convert=convert,
        )

    def read(self, text: str) -> Any:
        """Return the value of an answer; raises `UnfitAnswerError`."""
        bare = text.strip()
        if fenced := _FENCED.fullmatch(bare):
            bare = fenced[1]
        try:
            value = orjson.loads(bare)
        except orjson.JSONDecodeError as error:
            raise UnfitAnswerError(f"the answer is not JSON: {error}") from error
        if self._is_wrapped:
            if not isinstance(value, dict) or value.keys() != {VALUE}:
                raise UnfitAnswerError(f"the answer must be an object with {VALUE!r} alone")
            value = value[VALUE]
        return self._convert(value)

    def read_one_of(self, text: str, last: str) -> Any:
        """Return the value of the first that fits; raises `UnfitAnswerError` for the first."""
        try:
            return self.read(text)
        except UnfitAnswerError:
            if last != text:
                with contextlib.suppress(UnfitAnswerError):
                    return self.read(last)
            raise

    def read_whole(self, response: ModelResponse, *, what: str) -> Any:
        """Return the value of a response.

        Raises `UnfitAnswerError`, and `InvalidOutputError` for a response that is not whole.
        """
        if response.stop_reason not in COMPLETE:
            way_out = ": raise max_tokens" if response.stop_reason == "max_tokens" else ""
            reason = f"the model stopped with {response.stop_reason!r}{way_out}"
            raise InvalidOutputError(f"{what}: {reason}", raw=response.text)
        return self.read(response.text)


def output_of(wanted: Any, *, what: str) -> Output:
    """Return the output for a JSON schema or a type. Raises `CortexError` that names `what`."""
    if not isinstance(wanted, Mapping | Hashable):
        hint = "write a type, such as list[Invoice], or a JSON schema"
        raise UsageError(f"{what}: output {wanted!r:.80} is no type", hint=hint)
    try:
        if isinstance(wanted, Mapping):
            return Output.of_schema(wanted)
        return _of_type(wanted)
    except OutputSchemaError as error:
        raise UsageError(f"{what}: its output schema: {error}") from error
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from error


@cache
def _of_type(hint: Any) -> Output:
    return Output.of_type(hint)


@attrs.frozen
class Answer:
    """A response, and the value that it says."""

    response: ModelResponse
    value: Any


@attrs.frozen(kw_only=True)
class OutputCall:
    """A model call for an output, and a second one if the first answer does not fit."""

    output: Output
    request: ModelRequest
    given: StepInput
    key: str
    keyed: Callable[[str], str]
    """Returns the key of a further step of this name."""
    ask: Ask

    async def value(self) -> Any:
        return (await self.whole()).value

    async def whole(self) -> Answer:
        """Return the response that fits. Raises `InvalidOutputError`."""
        what = f"model call {self.key!r}"
        response = await self.ask(self.key, self.request, self.given)
        try:
            return Answer(response, self.output.read_whole(response, what=what))
        except UnfitAnswerError as error:
            request = self._corrected(response, error)
        given = input_of(request.to_json(), what=f"input of {what}, corrected")
        response = await self.ask(self.keyed(f"{self.key}, corrected"), request, given)
        try:
            return Answer(response, self.output.read_whole(response, what=what))
        except UnfitAnswerError as error:
            raise unfit(what, error, response.text) from error

    def _corrected(self, response: ModelResponse, error: UnfitAnswerError) -> ModelRequest:
        text = response.text
        answer = [{"role": "assistant", "content": text}] if text.strip() else []
        request = {"role": "user", "content": repair_request(error)}
        return attrs.evolve(self.request, messages=(*self.request.messages, *answer, request))


def repair_request(error: UnfitAnswerError) -> str:
    """Return the message that asks a model to correct its answer."""
    return f"Your answer does not fit the required JSON: {error}. Answer again, with JSON alone."


def unfit(what: str, error: UnfitAnswerError, text: str) -> CortexError:
    """Return the error for an answer that does not fit after its correction either."""
    message = f"{what}: the model's answer does not fit, also after one correction: {error}"
    return InvalidOutputError(message, raw=text)


def _of_class(cls: type, outer: tuple[type, ...]) -> Schema | None:
    if is_model(cls):
        return model_schema(cls)
    if not has_fields(cls):
        return None
    if cls in outer:
        raise UnsupportedTypeError(f"{cls.__name__} contains itself")
    fields = fields_of(cls, lambda inner: _of_class(inner, (*outer, cls)))
    return {**object_of(fields), "additionalProperties": False}


def _problems(misfit: MisfitError) -> str:
    listed = islice(misfit.problems, LISTED_MAX)
    return "; ".join(f"{each.field or 'the answer'} {each.reason}" for each in listed)


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
