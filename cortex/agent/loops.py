"""Notices an agent that goes round in circles.

The first time the model is asked to change its way, the second time people are asked whether it may
go on, the third time the job fails.
"""

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from hashlib import sha256
from typing import Any, Final

import attrs

from cortex.agent.limits import LoopTerms
from cortex.agent.transcript import ToolText
from cortex.domain.approvals.rules import WORDS_MAX
from cortex.domain.errors import RejectedError
from cortex.domain.timeouts import clipped
from cortex.durable.context import Context

WINDOW: Final = 3
"""The same call counts within so many times as many turns."""
SHOWN_BYTES: Final = 200
"""Length of the arguments of a call in a sentence, in bytes."""
CALLS_SHOWN_MAX: Final = 5
DETAIL_BYTES: Final = 2_000
"""Length of the arguments, and of the result, of each call that people see, in bytes."""
NO_NEWS: Final = "no news"
VOLATILE: Final[Mapping[str, frozenset[str]]] = {
    "http_request": frozenset({"headers"}),  # with the date, and an id of each request
    "run_command": frozenset({"duration_s"}),
}
"""Fields of tools' results that differ although there is nothing new."""


class Reaction(IntEnum):
    """What follows a loop, by how often it was noticed."""

    ASK_MODEL = 1
    ASK_PEOPLE = 2
    FAIL = 3


@attrs.frozen(kw_only=True)
class MadeCall:
    """A tool call of one turn and its result."""

    tool: str
    arguments: Any
    result: str
    """As the model got it, or its beginning."""
    identity: str
    """Equal for equal results."""


@attrs.frozen(kw_only=True)
class Loop:
    """A loop of the agent's turns."""

    key: str
    """Equal for the same loop."""
    text: str
    """What repeats, for the model and for people."""
    reaction: Reaction
    calls: Sequence[MadeCall]
    """The calls of the turn that closed the loop."""


@attrs.frozen
class Note:
    """The message to the model about this loop."""

    text: str
    is_pinned: bool = False
    """A summary of the conversation does not replace it: people said it."""


@attrs.define
class LoopDetector:
    """Looks at the tool calls of each turn; decides by nothing else."""

    terms: LoopTerms
    _turn: int = attrs.field(default=0, init=False)
    _made: defaultdict[bytes, deque[int]] = attrs.field(
        factory=lambda: defaultdict(deque), init=False
    )
    """The turns of each call with the same result, the latest ones."""
    _stale: int = attrs.field(default=0, init=False)
    """How many turns in a row have brought nothing new."""
    _noticed: dict[str, int] = attrs.field(factory=dict, init=False)

    def take(self, calls: Sequence[MadeCall]) -> Loop | None:
        """Take the calls of the next turn; return the loop that it closes."""
        self._turn += 1
        marks = {_mark(each): each for each in calls}
        is_news = any(mark not in self._made for mark in marks)
        self._stale = 0 if is_news else self._stale + 1
        loop: Loop | None = None
        for mark, call in marks.items():
            turns = self._made[mark]
            turns.append(self._turn)
            if not (most := self.terms.same_call):
                continue
            while turns[0] <= self._turn - WINDOW * most:
                turns.popleft()
            if len(turns) >= most and loop is None:
                loop = self._loop(mark.hex(), _same_call(call, len(turns)), [call])
        if loop is None and 0 < self.terms.no_news <= self._stale:
            text = f"{self._stale} turns in a row brought no new result"
            loop = self._loop(NO_NEWS, text, list(marks.values()))
        return loop

    def reacted(self, loop: Loop) -> None:
        """Take that something was done about a loop: what it consists of is counted anew."""
        self._noticed[loop.key] = loop.reaction
        self._stale = 0
        if loop.key != NO_NEWS:
            self._made[bytes.fromhex(loop.key)].clear()

    def _loop(self, key: str, text: str, calls: Sequence[MadeCall]) -> Loop:
        reaction = Reaction(min(self._noticed.get(key, 0) + 1, Reaction.FAIL))
        return Loop(key=key, text=text, reaction=reaction, calls=calls)


def advice(loop: Loop) -> str:
    """Return the message to the model about a loop."""
    return (
        f"You go round in circles: {loop.text}. Repeating it will change nothing. Try another way, "
        "or end with what you have and say what is missing."
    )


def permission(loop: Loop, reason: str | None) -> str:
    """Return the message to the model after people have let it go on."""
    words = f" They say: {reason}" if reason else ""
    return f"People have seen that you go round in circles ({loop.text}) and let you go on.{words}"


def identity_of(tool: str, result: ToolText) -> str:
    """Return a text that is equal for equal results of a tool."""
    volatile = VOLATILE.get(tool)
    if volatile is None or result.is_error or result.whole_bytes is not None:
        return result.identity
    try:
        fields = json.loads(result.text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):  # an application's own tool of that name
        return result.identity
    return json.dumps({name: value for name, value in fields.items() if name not in volatile})


def _same_call(call: MadeCall, times: int) -> str:
    arguments = clipped(_as_text(call.arguments), SHOWN_BYTES)
    return f"tool {call.tool!r} with {arguments} gave the same result {times} times"


def _as_text(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _detail(call: MadeCall) -> dict[str, str]:
    """Return a call and its result for people."""
    return {
        "tool": call.tool,
        "arguments": clipped(_as_text(call.arguments), DETAIL_BYTES),
        "result": clipped(call.result, DETAIL_BYTES),
    }


def _mark(call: MadeCall) -> bytes:
    """Return a digest of a call and its result."""
    whole = json.dumps([call.tool, call.arguments, call.identity], sort_keys=True)
    return sha256(whole.encode()).digest()[:16]


@attrs.define
class LoopWatch:
    """Reacts to the loops of one run, each time by a recorded step.

    What a replay compares holds no words of ours: they may be others in the next release.
    """

    ctx: Context
    agent: str
    detector: LoopDetector

    async def watch(self, step: str, calls: Sequence[MadeCall], *, is_past: bool) -> Note | None:
        """Take the calls of a turn; return the message to the model, None without a loop.

        `is_past`: what follows is on record. Without the step, an older release recorded it, which
        did not look.

        Raises `DeniedError` and `ApprovalExpiredError` if people do not let the agent go on, and
        `RejectedError` if it still does not stop.
        """
        loop = self.detector.take(calls)
        if loop is None or (is_past and not self.ctx.was_recorded(step)):
            return None
        self.detector.reacted(loop)
        if loop.reaction is Reaction.FAIL:
            raise RejectedError(
                f"agent {self.agent!r} goes round in circles: {loop.text}, although the model was "
                "asked to change its way and people let it go on once",
                hint="change its prompt or its tools, or raise loops in its specification",
            )
        if loop.reaction is Reaction.ASK_MODEL:
            given = {"loop": loop.key}
            return Note(str(await self.ctx.group(step, partial(_advise, loop), given=given)))
        decision = await self.ctx.approve_or_end(
            step,
            detail={
                "agent": self.agent,
                "calls": list(map(_detail, loop.calls[:CALLS_SHOWN_MAX])),
            },
            effect="the agent goes on",
            reason=clipped(f"goes round in circles: {loop.text}", WORDS_MAX // 2),
        )
        return Note(permission(loop, decision.reason), is_pinned=True)


async def _advise(loop: Loop) -> str:
    return advice(loop)
