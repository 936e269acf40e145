"""Room in an agent's context: what is left out before a request gets too long.

First the tool results of long ago are shortened. If that is not enough, the model sums up the old
turns, and the summary takes their place. The system prompt, the prompt, pinned texts and the last
turns stay as they are, and a tool call stays with its result.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from cortex.agent.limits import CompactionTerms
from cortex.agent.models.errors import ModelRejectedError
from cortex.agent.spec import AgentSpec
from cortex.agent.transcript import SUM_UP, Transcript
from cortex.domain.budget import LIKELY_BYTES_PER_TOKEN, likely_tokens
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.domain.windows import window_of
from cortex.durable.codec import StepInput, input_of
from cortex.durable.context import Context

GOAL: Final = 0.6
"""Share of the threshold that is used after room was made: so that it is made rarely."""
WORTH: Final = 0.2
"""Share of the request that must be left out at least, by either way."""
SCALES: Final = (0.5, 3.0)
"""Limits of the ratio of counted tokens to estimated ones; what is outside is miscounted."""
SUMMARY_TOKENS: Final = 4_096
FAILURES_MAX: Final = 2
"""After so many failed summaries in a run there are no more: each of them is paid for."""


@attrs.frozen(kw_only=True)
class Room:
    """How room is made in one turn: one of both."""

    shortened: int | None = None
    """How many of the oldest tool results are shortened then."""
    keep_turns: int | None = None
    """How many of the last turns stay beside a summary of the others."""
    has_failed: bool = False
    """There is no summary."""

    def to_json(self) -> dict[str, int]:
        """Return what was chosen."""
        return attrs.asdict(self, filter=lambda _, value: bool(value))


@attrs.define
class Gauge:
    """Counts the tokens of the next request: an estimate, corrected by what the last one had."""

    scale: float = 1.0

    def learn(self, estimate: int, usage: Usage) -> None:
        """Take what the provider counted for a request; some servers count nothing."""
        if estimate and usage.prompt_tokens:
            low, high = SCALES
            self.scale = min(high, max(low, usage.prompt_tokens / estimate))

    def tokens(self, estimate: int) -> int:
        return round(estimate * self.scale)


def threshold(window: int, max_tokens: int, terms: CompactionTerms) -> int:
    """Return the tokens from which on room is made: the answer must fit, too."""
    return max(1, min(int(window * terms.at), window - max_tokens))


def room_for(
    transcript: Transcript,
    *,
    estimate: int,
    gauge: Gauge,
    most: int,
    terms: CompactionTerms,
    may_sum_up: bool = True,
) -> Room | None:
    """Return how to make room in a request of `estimate` tokens; None if nothing can be done."""
    tokens, goal = gauge.tokens(estimate), int(most * GOAL)
    count, freed = transcript.old_results(terms.keep_turns)
    if count and tokens - _tokens(freed, gauge) <= goal:
        return Room(shortened=count)
    for keep in range(terms.keep_turns, 0, -1) if may_sum_up else ():
        old = _tokens(transcript.bytes_before(keep), gauge)
        if old >= tokens * WORTH and (tokens - old <= goal or keep == 1):
            return Room(keep_turns=keep)
    # What is shortened changes what the provider caches: not a little in each turn.
    is_worth_it = _tokens(freed, gauge) >= tokens * WORTH
    return Room(shortened=count) if count and is_worth_it else None


def _tokens(size: int, gauge: Gauge) -> int:
    return gauge.tokens(round(size / LIKELY_BYTES_PER_TOKEN))


def summary_request(messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the old turns with the request to sum them up: the same prefix as before."""
    block = {"type": "text", "text": SUM_UP}
    *before, last = messages
    if last["role"] != "user":
        return (*messages, {"role": "user", "content": [block]})
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return (*before, {**last, "content": [*blocks, block]})


def _thinking_tokens(request: ModelRequest) -> int:
    """Return what the model may think with: that counts as part of its answer."""
    tokens = request.options.thinking
    return tokens if isinstance(tokens, int) else 0


def unusable(response: ModelResponse) -> str | None:
    """Return why a summary cannot be used; None if it can."""
    if response.stop_reason != "end_turn":
        return f"the model stopped with {response.stop_reason!r}"
    return None if response.text.strip() else "the summary is empty"


async def _chosen(room: Room) -> dict[str, int]:
    return room.to_json()


@attrs.define
class Compactor:
    """Makes room in one run's transcript: by recorded steps, so that a replay asks nobody again.

    A summary is a model call of its own, with its own cost. It repeats tools, system and the old
    messages as they were sent before, so that it reads them from the provider's cache. Tokens are
    counted by the last request's usage and an estimate of what is new: the API's own count of each
    request would cost a call per turn. What providers do themselves (compaction and context
    editing of the Messages API, both in beta) is not used: a summary made by one provider inside an
    answer could not be shown, priced or continued with another.
    """

    ctx: Context
    spec: AgentSpec
    transcript: Transcript
    prefix: str
    gauge: Gauge = attrs.field(factory=Gauge, init=False)
    failures: int = attrs.field(default=0, init=False)
    """How many summaries have failed."""
    most: int | None = attrs.field(init=False)
    """Tokens from which on room is made; None if the window is unknown, or it never is."""

    def __attrs_post_init__(self) -> None:
        window = self.spec.max_context_tokens or window_of(self.spec.model)
        terms, answer = self.spec.compaction, self.spec.max_tokens
        if window is None or not terms.at:
            self.most = None
        else:
            self.most = threshold(window, answer, terms)

    def learn(self, number: int, request: ModelRequest, response: ModelResponse) -> None:
        """Take the usage of a turn, unless the next one is on record and decides nothing."""
        if self.most is not None and not self.was_asked(number + 1):
            self.gauge.learn(likely_tokens(request), response.usage)

    def was_asked(self, number: int) -> bool:
        """Return whether the request of a turn is on record, or that it was too long."""
        steps = (f"{self.prefix}{number} {each}" for each in ("model", "shorten", "without files"))
        return any(map(self.ctx.was_recorded, steps))

    async def make_room(self, number: int, request: ModelRequest, given: StepInput) -> Room:
        """Make room for a request if it is too long; return what is left to do for the caller.

        That is to shorten results: so many, or what can be if a summary failed.
        """
        step = f"{self.prefix}{number} make room"
        room = Room() if self.ctx.was_recorded(step) else self._needed(number, request)
        if room is None:
            return Room()

        before = {"before": given.digest.hex()}
        room = Room(**await self.ctx.group(step, partial(_chosen, room), given=before))
        if room.keep_turns is None:
            return room
        why = await self._sum_up(number, room.keep_turns, request, given)
        if why is None:
            return Room()
        self.failures += 1
        self.ctx.log(
            f"compaction in step {number} failed: {why}; tool results are shortened instead. If the"
            " context fills up: raise max_context_tokens, or give a smaller task",
            "warning",
        )
        return Room(has_failed=True)

    def _needed(self, number: int, request: ModelRequest) -> Room | None:
        if self.most is None or self.was_asked(number):
            return None
        estimate = likely_tokens(request)
        if self.gauge.tokens(estimate) <= self.most:
            return None
        return room_for(
            self.transcript,
            estimate=estimate,
            gauge=self.gauge,
            most=self.most,
            terms=self.spec.compaction,
            may_sum_up=self.failures < FAILURES_MAX,
        )

    async def _sum_up(
        self, number: int, keep_turns: int, request: ModelRequest, given: StepInput
    ) -> str | None:
        """Put a summary in the place of old turns; return why it failed, None if it did not."""
        step = f"{self.prefix}{number} compact"
        if not self.ctx.was_recorded(step) and self.was_asked(number):
            return "the model refused to sum up"  # in an earlier attempt, which went on without
        old = self.transcript.messages[: self.transcript.turn_start(keep_turns)]
        summing_up = attrs.evolve(
            request,
            messages=summary_request(old),
            max_tokens=max(request.max_tokens, SUMMARY_TOKENS + _thinking_tokens(request)),
            output=None,
            options=attrs.evolve(request.options, stop_sequences=()),  # they would cut the summary
        )
        what = {"before": given.digest.hex(), "keep_turns": keep_turns}
        stands_for = input_of(what, what=f"summary of step {number}")
        try:
            response = await self.ctx.ask(step, summing_up, given=stands_for)
        except ModelRejectedError as error:
            return error.message
        why = unusable(response)
        if why is None:
            self.transcript.sum_up(keep_turns, response.text)
        return why
