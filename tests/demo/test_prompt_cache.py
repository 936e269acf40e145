"""The prompt cache of the scripted server: what is read, what is written, what is refused."""

from typing import Any

import pytest

from cortex.demo.prompt_cache import CachedTokens, PromptCache, places_of, tokens_of
from cortex.demo.validation import refusal_of

LONG = "word " * 1_500
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
MODEL = "scripted"


def request(*turns: str, mark: Any = None, **fields: Any) -> dict[str, Any]:
    """A conversation: the user's and the assistant's texts in turn."""
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(turns)
    ]
    marked = {} if mark is None else {"cache_control": mark}
    return {"model": MODEL, "max_tokens": 10, "messages": messages, **marked, **fields}


def system(text: str, mark: Any = None) -> list[dict[str, Any]]:
    block = {"type": "text", "text": text}
    return [block if mark is None else {**block, "cache_control": mark}]


def served(cache: PromptCache, asked: dict[str, Any], *, at_s: float = 0.0) -> CachedTokens:
    """Serve a request that the API takes, to the end."""
    assert refusal_of(asked) is None
    visit = cache.visit(asked["model"], places_of(asked), at_s)
    cache.keep(visit)
    return visit.tokens


def test_a_prefix_is_written_once_and_read_by_longer_requests() -> None:
    cache = PromptCache()
    first = served(cache, request(LONG, mark=MARK))
    assert first.read == 0 < first.written_5m
    longer = request(LONG, "yes", LONG, mark=MARK)
    second = served(cache, longer)
    assert second.read == first.written_5m
    assert second.total == tokens_of(places_of(longer))


def test_nothing_is_kept_without_a_mark() -> None:
    cache = PromptCache()
    assert served(cache, request(LONG)).total == 0
    assert served(cache, request(LONG, mark=MARK)).read == 0


def test_a_changed_byte_loses_what_follows_it_but_not_what_precedes() -> None:
    cache = PromptCache()
    tools = [{"name": "t", "description": LONG, "input_schema": {}}]
    fields = {"tools": tools, "system": system("s", MARK)}
    served(cache, request(LONG, mark=MARK, **fields))
    read = served(cache, request(f"{LONG}!", mark=MARK, **fields)).read
    assert read == tokens_of(places_of(request("", **fields))[:2])
    changed = [{**tools[0], "name": "u"}]
    assert served(cache, request(LONG, mark=MARK, **{**fields, "tools": changed})).read == 0


@pytest.mark.parametrize(
    "model, least",
    [("claude-opus-5", 512), ("claude-sonnet-4-5", 1_024), ("claude-haiku-4-5", 4_096)],
)
def test_shorter_prefixes_than_the_models_minimum_are_not_kept(model: str, least: int) -> None:
    cache = PromptCache()
    overhead = tokens_of(places_of(request("")))
    short = request("x" * 4 * (least - overhead - 2), mark=MARK, model=model)
    assert served(cache, short).total == 0
    long = request("x" * 4 * (least - overhead + 2), mark=MARK, model=model)
    assert served(cache, long).written_5m >= least
    assert served(cache, {**long, "model": "claude-opus-5-1"}).read == 0


@pytest.mark.parametrize("mark, lifetime_s", [(MARK, 300.0), (HOUR, 3_600.0)])
def test_reading_renews_the_life_of_an_entry(mark: dict[str, str], lifetime_s: float) -> None:
    cache = PromptCache()
    asked = request(LONG, mark=mark)
    written = served(cache, asked)
    assert (written.written_1h > 0) is (mark is HOUR)
    assert served(cache, asked, at_s=lifetime_s - 1).read > 0
    assert served(cache, asked, at_s=2 * lifetime_s - 2).read > 0
    assert served(cache, asked, at_s=3 * lifetime_s - 1).read == 0


def test_an_entry_further_back_than_twenty_blocks_needs_a_mark_of_its_own() -> None:
    cache = PromptCache()
    served(cache, request(LONG, mark=MARK))
    results = [{"type": "text", "text": f"r{number}"} for number in range(19)]
    asked = request(LONG, "yes", mark=MARK)
    asked["messages"].append({"role": "user", "content": results})
    far = {**asked, "messages": [*asked["messages"]]}
    assert served(PromptCache(), far).read == 0
    assert served(cache, far).read == 0
    marked = {"type": "text", "text": LONG, "cache_control": MARK}
    asked["messages"][0] = {"role": "user", "content": [marked]}
    asked["messages"][2] = {"role": "user", "content": [*results, results[0]]}
    assert served(cache, asked).read > 0


def test_usage_counts_writes_by_their_life() -> None:
    cache = PromptCache()
    asked = request(LONG, mark=MARK, system=system(LONG, HOUR))
    tokens = served(cache, asked)
    assert tokens.written_1h == tokens_of(places_of(asked)[:1])
    assert tokens.written_1h + tokens.written_5m == tokens_of(places_of(asked))


def test_entries_can_be_read_only_once_their_answer_has_begun() -> None:
    cache = PromptCache()
    places = places_of(request(LONG, mark=MARK))
    first = cache.visit(MODEL, places, 0.0)
    assert cache.visit(MODEL, places, 0.0).tokens.read == 0
    cache.keep(first)
    assert cache.visit(MODEL, places, 0.0).tokens.read > 0


def test_thinking_and_blank_text_take_no_automatic_mark() -> None:
    asked = request(LONG, "yes", mark=MARK)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    asked["messages"][1]["content"] = [{"type": "text", "text": "yes"}, thinking]
    marks = [each.where for each in places_of(asked) if each.ttl]
    assert marks == ["messages.1.content.0"]


FIVE = [{"type": "text", "text": str(number), "cache_control": MARK} for number in range(5)]
THINKING = {"type": "thinking", "thinking": "", "signature": "s", "cache_control": MARK}


@pytest.mark.parametrize(
    "asked, refusal",
    [
        (request("hi", system=FIVE), "A maximum of 4 blocks with cache_control may be provided."),
        (request("hi", system=FIVE[:4], mark=MARK), "Found 5."),
        (
            request("hi", system=system("s", MARK), mark=HOUR),
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",
        ),
        (
            request(
                "hi",
                tools=[{"name": "t", "cache_control": MARK}],
                system=system("s", HOUR),
            ),
            "system.0.cache_control.ttl: a ttl='1h'",
        ),
        (
            request("hi", system=system("", MARK)),
            "system.0.text: cache_control cannot be set for empty text blocks",
        ),
        (
            {**request("hi"), "messages": [{"role": "user", "content": [THINKING, *FIVE[:1]]}]},
            "messages.0.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
        (request("hi", mark={"type": "ephemeral", "ttl": "2h"}), "Input should be '5m' or '1h'"),
        (request("hi", mark={"type": "forever"}), "Input should be 'ephemeral'"),
        (
            {**request("hi", mark=HOUR), "messages": [{"role": "user", "content": FIVE[:1]}]},
            "the last block has a mark with ttl='5m'",
        ),
    ],
)
def test_marks_that_the_api_refuses_are_refused(asked: dict[str, Any], refusal: str) -> None:
    assert refusal in (refusal_of(asked) or "")
