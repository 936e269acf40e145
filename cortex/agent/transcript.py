"""The messages of one agent's conversation: each request is the previous one and what came since.

Tool results that are too long for a model are cut when they are sent; the record, and a file in the
job's workspace, keep them whole. When the context is full, the oldest results are cut further.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from cortex.agent.models.repairs import AnswerRepairs, RepairedAnswer
from cortex.domain.budget import LIKELY_BYTES_PER_TOKEN, likely_file_tokens
from cortex.domain.model import Block, ModelResponse
from cortex.domain.timeouts import clipped

SHORTENED_BYTES: Final = 1_000
"""The beginning of a result that is left when the context is full."""
END_SHARE: Final = 0.25
"""How much of a result that is cut to its limit is its end."""
NO_TEXT: Final = "(no output)"
NOT_SHOWN: Final = "[not shown any more, because the conversation was long: ask for it again]"
REFUSED: Final = "[left out, because the model's API refused the request with it]"
SUM_UP: Final = (
    "The conversation has become long. Sum it up now, so that you can go on from the summary "
    "alone: what you were asked for, with every constraint; what you found, with exact names, "
    "paths, figures and ids; what you did and changed, in order; what failed and why; what is left "
    "to do. Call no tool. Answer with the summary only."
)
SUMMED_UP: Final = "[{} turns were summed up, because the conversation was long. Your summary:]"
"""Precedes a summary in the first message."""


@attrs.define
class ToolText:
    """One tool result as text, under the name of its step."""

    name: str
    text: str
    is_error: bool
    note: str | None
    """What a person changed in the call."""
    file: str | None = None
    """The path of the whole in the workspace; None without one."""
    whole_bytes: int | None = None
    """The size of the whole if the text is only its beginning."""
    whole_sha256: str | None = None
    """Its digest then."""
    files: tuple[Block, ...] = ()
    """Images and PDF files that the model sees; the text names them."""
    are_refused: bool = False
    """The model's API did not take its files."""

    def block(self, use_id: str, limit_bytes: int, *, can_read: bool) -> dict[str, Any]:
        """Return the block for the model, its text cut to the limit.

        At the limit of what is shortened without its files.
        """
        text = self._within(limit_bytes, can_read=can_read)
        if self.note is not None:
            text = f"{text}\n\n[{self.note}]"
        content: Any = text
        if self.are_refused:
            content = f"{text}\n\n{REFUSED}"
        elif self.files and limit_bytes > SHORTENED_BYTES:
            content = [{"type": "text", "text": text}, *self.files]
        elif self.files:
            content = f"{text}\n\n{NOT_SHOWN}"
        block = {"type": "tool_result", "tool_use_id": use_id, "content": content}
        return {**block, "is_error": True} if self.is_error else block

    @property
    def weight(self) -> int:
        """The size of the text, and of a text that takes as many tokens as the files."""
        seen = () if self.are_refused else self.files
        files = int(likely_file_tokens(seen) * LIKELY_BYTES_PER_TOKEN)
        return len(self.text.encode()) + files

    @property
    def identity(self) -> str:
        """Equal for equal results."""
        digests = [] if self.whole_sha256 is None else [self.whole_sha256]
        return "\n".join(
            [self.text, *digests, *(str(each["source"]["sha256"]) for each in self.files)]
        )

    def _within(self, limit_bytes: int, *, can_read: bool) -> str:
        if not self.text.strip():
            return NO_TEXT
        size = self.whole_bytes or len(self.text.encode())
        if size <= limit_bytes:
            return self.text
        has_end = self.whole_bytes is None and limit_bytes > SHORTENED_BYTES
        end_bytes = int(limit_bytes * END_SHARE) if has_end else 0
        beginning = clipped(self.text, limit_bytes - end_bytes)
        end = self.text.encode()[size - end_bytes :].decode(errors="ignore") if end_bytes else ""
        left_out = size - len(beginning.encode()) - len(end.encode())
        ways = ["ask for less"]
        if self.file is not None:
            whole = f"the whole is in the file {self.file} of the workspace"
            ways.insert(0, f"{whole}: read it in parts with read_file" if can_read else whole)
        note = f"[… {left_out:,} of {size:,} bytes are left out here; {', or '.join(ways)}]"
        return "\n\n".join(filter(None, (beginning, note, end)))


@attrs.define
class _Results:
    """The tool results of one turn: the message at a place of the conversation."""

    place: int
    use_ids: Sequence[str]
    texts: Sequence[ToolText]
    notes: list[str] = attrs.field(factory=list)
    """What follows them in the same message."""


@attrs.define
class Transcript:
    """The conversation so far, always one that the Messages API takes."""

    prompt: str | Sequence[Block]
    """Text, or files and text."""
    result_tokens: int
    """Tokens of one tool result at most, by an estimate."""
    can_read: bool
    """The agent has the tool `read_file`."""
    shortened: int = 0
    """How many results are shortened: the oldest ones."""
    _repairs: AnswerRepairs = attrs.field(factory=AnswerRepairs, init=False)
    _messages: list[dict[str, Any]] = attrs.field(init=False)
    _prompt: Any = attrs.field(init=False)
    """The content of the first message, as it was given."""
    _results: list[_Results] = attrs.field(factory=list, init=False)
    _pinned: list[str] = attrs.field(factory=list, init=False)
    """Texts of the user that no summary replaces."""
    _summed_up: int = attrs.field(default=0, init=False)
    """How many turns a summary has replaced."""

    def __attrs_post_init__(self) -> None:
        content = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        self._messages = [{"role": "user", "content": content}]
        self._prompt = self._messages[0]["content"]

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The messages of the next request."""
        return tuple(self._messages)

    @property
    def limit_bytes(self) -> int:
        """Limit of one tool result in bytes: a token is about four."""
        return int(self.result_tokens * LIKELY_BYTES_PER_TOKEN)

    def add_answer(
        self, response: ModelResponse, turn: int, *, may_pause: bool = False
    ) -> RepairedAnswer:
        """Append an answer, if anything of it can go back; return it as repaired."""
        repaired = self._repairs.repaired(response.content, turn=turn, may_pause=may_pause)
        if repaired.content:
            self._messages.append({"role": "assistant", "content": list(repaired.content)})
        return repaired

    def add_text(self, text: str) -> None:
        """Append a text of the user."""
        self._messages.append({"role": "user", "content": text})

    def add_note(self, text: str, *, is_pinned: bool = False) -> None:
        """Append a text of the user to the last tool results."""
        self._results[-1].notes.append(text)
        self._render(len(self._results) - 1)
        if is_pinned:
            self._pinned.append(text)

    def add_results(self, use_ids: Sequence[str], texts: Sequence[ToolText]) -> None:
        """Append the results of an answer's calls, in their order."""
        self._results.append(_Results(len(self._messages), use_ids, texts))
        self._messages.append({})
        self._render(len(self._results) - 1)

    @property
    def new_files(self) -> list[str]:
        """The digests of the files in the last message, if that has tool results."""
        is_last = bool(self._results) and self._results[-1].place == len(self._messages) - 1
        texts = self._results[-1].texts if is_last else ()
        files = [each for text in texts if not text.are_refused for each in text.files]
        return [str(each["source"]["sha256"]) for each in files]

    def leave_out_new_files(self) -> None:
        """Name the files of the last tool results only."""
        for each in self._results[-1].texts:
            each.are_refused = bool(each.files)
        self._render(len(self._results) - 1)

    def count_to_shorten(self) -> int | None:
        """Return how many of the oldest results must be shortened to halve the size of all.

        None: there is nothing left to shorten.
        """
        sizes = [
            min(each.weight, self._most(each) if place >= self.shortened else 0)
            for place, each in enumerate(self._texts())
        ]
        spare = [max(0, size - SHORTENED_BYTES) for size in sizes]
        freed, goal = 0, sum(spare) / 2
        for place, size in enumerate(spare):
            freed += size
            if freed and freed >= goal:
                return place + 1
        return None

    def to_shorten(self, count: int) -> list[ToolText]:
        """Return the results that `shorten` would cut now, so that each can be kept in a file."""
        texts = self._texts()[self.shortened : count]
        return [each for each in texts if len(each.text.encode()) > SHORTENED_BYTES]

    def shorten(self, count: int) -> None:
        """Cut the oldest `count` results to their beginning."""
        self.shortened = max(self.shortened, count)
        for turn in range(len(self._results)):
            self._render(turn)

    def old_results(self, keep_turns: int) -> tuple[int, int]:
        """Return how many results are older than the last turns, and the bytes in shortening them.

        The count is 0 if there is nothing to shorten.
        """
        end = self.turn_start(keep_turns)
        old = [text for each in self._results if end and each.place < end for text in each.texts]
        sizes = [min(each.weight, self._most(each)) for each in old[self.shortened :]]
        freed = sum(max(0, size - SHORTENED_BYTES) for size in sizes)
        return (len(old) if freed else 0), freed

    def turn_start(self, keep_turns: int) -> int | None:
        """Return where the last so many turns begin; None if there is nothing but them."""
        starts = [
            place
            for place, each in enumerate(self._messages)
            if each["role"] == "assistant" and self._messages[place - 1]["role"] == "user"
        ]
        return starts[-keep_turns] if len(starts) > keep_turns else None

    def bytes_before(self, keep_turns: int) -> int:
        """Return the size of what a summary of all but the last turns would replace."""
        return len(orjson.dumps(self._messages[1 : self.turn_start(keep_turns) or 1]))

    def sum_up(self, keep_turns: int, summary: str) -> None:
        """Put a summary in the place of all turns but the last ones."""
        if (start := self.turn_start(keep_turns)) is None:
            return
        self._summed_up += sum(each["role"] == "assistant" for each in self._messages[:start])
        prompt = self._prompt
        first = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        texts = [*self._pinned, f"{SUMMED_UP.format(self._summed_up)}\n\n{summary}"]
        content = [*first, *({"type": "text", "text": each} for each in texts)]
        self._messages = [{"role": "user", "content": content}, *self._messages[start:]]
        replaced = [each for each in self._results if each.place < start]
        self._results = self._results[len(replaced) :]
        for each in self._results:
            each.place -= start - 1
        self.shortened = max(0, self.shortened - sum(len(each.texts) for each in replaced))

    def _most(self, text: ToolText) -> int:
        """Return the most that a result weighs: its text is cut, its files are not."""
        return self.limit_bytes + text.weight - len(text.text.encode())

    def _texts(self) -> list[ToolText]:
        return [text for each in self._results for text in each.texts]

    def _render(self, turn: int) -> None:
        first = sum(len(each.texts) for each in self._results[:turn])
        results = self._results[turn]
        blocks = [
            text.block(
                use_id,
                SHORTENED_BYTES if first + place < self.shortened else self.limit_bytes,
                can_read=self.can_read,
            )
            for place, (use_id, text) in enumerate(zip(results.use_ids, results.texts, strict=True))
        ]
        notes = [{"type": "text", "text": each} for each in results.notes]
        self._messages[results.place] = {"role": "user", "content": [*blocks, *notes]}
