"""Handlers of messages in the code of an application: what `@handler` makes of a function."""

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, Final

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.messages.message import ATTEMPTS_MAX, FOR_DAYS, Message
from cortex.domain.messages.subscription import NAME, Channel, Subscription
from cortex.domain.messages.topic import check_pattern

TIMEOUT_S: Final = 60.0
TIMEOUT_MAX_S: Final = 600.0

Function = Callable[[Message], Awaitable[object]]


@attrs.frozen(kw_only=True)
class MessageHandler:
    """A registered handler. Call it like the function that it wraps, in tests for example."""

    subscription: Subscription
    function: Function
    timeout_s: float

    async def __call__(self, message: Message) -> object:
        return await self.function(message)


def handler(
    topic: str,
    *,
    name: str | None = None,
    filter: dict[str, Any] | None = None,  # noqa: A002 -- the word of subscription files
    heavy: bool = False,
    timeout: float = TIMEOUT_S,
    attempts: int = ATTEMPTS_MAX,
) -> Callable[[Function], MessageHandler]:
    """Make an async function of a `Message` a handler of a topic, or of a pattern: `order.*`.

    It is called at least once for each message, with the same `message.id` each time; a second
    call with a known id must do nothing. `name`, that of the function by default, names its
    subscription: several pods with the same name share its messages. `filter`: it gets only
    messages whose payload contains this. A pod runs ten calls of a handler at a time, and two of
    all `heavy` ones together. `timeout` is in seconds, for one call. A message whose call fails is
    tried again after 5 to 120 seconds, until it has had its `attempts`.

    Raises `UsageError`.
    """

    def decorate(function: Function) -> MessageHandler:
        chosen = name or getattr(function, "__name__", "").lower()
        if not NAME.fullmatch(chosen):
            raise UsageError(
                f"handler name {chosen[:120]!r} is not valid",
                hint="lower-case letters, digits, '.', '_' and '-', at most 100",
            )
        if not inspect.iscoroutinefunction(function):
            raise UsageError(f"handler {chosen!r}: {function!r} is not an async function")
        if len(inspect.signature(function).parameters) != 1:
            raise UsageError(f"handler {chosen!r} must take one argument, the message")
        if not 0 < timeout <= TIMEOUT_MAX_S:
            raise UsageError(
                f"handler {chosen!r}: timeout is {timeout:g} s, at most {TIMEOUT_MAX_S:g}"
            )
        if not 1 <= attempts <= FOR_DAYS.attempts:
            raise UsageError(
                f"handler {chosen!r}: attempts is {attempts}, not from 1 to {FOR_DAYS.attempts}"
            )
        return MessageHandler(
            subscription=Subscription(
                name=chosen,
                topic=check_pattern(topic, source=f"handler {chosen!r}"),
                channel=Channel.HANDLER,
                filter=filter or {},
                is_heavy=heavy,
                attempts=attempts,
            ),
            function=function,
            timeout_s=timeout,
        )

    return decorate


def handlers_by_name(*modules: ModuleType) -> dict[str, MessageHandler]:
    """Return the handlers at the top level of modules. Raises `UsageError` for a name twice."""
    found: dict[str, MessageHandler] = {}
    for value in (value for module in modules for value in vars(module).values()):
        if isinstance(value, MessageHandler):
            name = value.subscription.name
            if found.setdefault(name, value) is not value:
                raise UsageError(f"handler {name!r} is defined twice", hint="give one a name=")
    return found
