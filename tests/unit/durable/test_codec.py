"""JSON in and out of the record: lossless, the same everywhere, and always storable."""

import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain import redaction
from cortex.domain.canonical import DEPTH_MAX
from cortex.domain.errors import InvalidValueError
from cortex.domain.limits import SizeLimit
from cortex.domain.redaction import TEXT_MAX, clean_text
from cortex.durable.codec import (
    PAYLOAD_BYTES_MAX,
    decode,
    encode,
    input_of,
    input_of_json,
    parse_payload,
)
from cortex.durable.structuring import structure_discreetly
from tests.support.knowing import forget_secrets

ROOT = Path(__file__).parent.parent.parent.parent
STORABLE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def digest_of(*parts: Any, what: str) -> bytes:
    return input_of({f"part {n}": part for n, part in enumerate(parts)}, what=what).digest


ANY_TEXT = st.text(st.characters(codec=None))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def nested(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20
    )


def deep(levels: int, *, inside: object = 0) -> object:
    value = inside
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: int


@attrs.frozen
class Report:
    title: str
    at: datetime
    parts: tuple[str, ...] = ()
    extra: Any = None


AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
RICH: list[tuple[object, object]] = [
    (AT, "2025-01-02T03:04:05+00:00"),
    (date(2025, 1, 2), "2025-01-02"),
    (time(3, 4), "03:04:00"),
    (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    (Word.YES, "yes"),
    ((1, "two"), [1, "two"]),
    (Point(1, 2), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({1: "one"}, {"1": "one"}),
    (
        Report("t", AT, ("a",), {"when": AT}),
        {
            "title": "t",
            "at": "2025-01-02T03:04:05+00:00",
            "parts": ["a"],
            "extra": {"when": "2025-01-02T03:04:05+00:00"},
        },
    ),
]


@given(nested(STORABLE_TEXT))
def test_json_round_trips_through_the_codec(value: Any) -> None:
    assert decode(encode(value, what="v")) == value


@given(nested(ANY_TEXT))
def test_any_text_is_encoded_storably(value: Any) -> None:
    text = encode(value, what="v")
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode()  # no lone surrogates
    assert encode(decode(text), what="v") == text


@pytest.mark.parametrize("value, plain", RICH, ids=[type(value).__name__ for value, _ in RICH])
@pytest.mark.parametrize(
    "around",
    [lambda v: v, lambda v: [v], lambda v: {"v": v, "none": None}],
    ids=["alone", "in a list", "beside null"],
)
def test_rich_values_become_plain_at_any_depth(value: object, plain: object, around: Any) -> None:
    assert decode(encode(around(value), what="v")) == around(plain)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("levels", [0, 1, 2, 30])
def test_numbers_that_json_lacks_are_refused_at_any_depth(number: float, levels: int) -> None:
    value = deep(levels, inside=number)
    with pytest.raises(InvalidValueError, match=f"the answer holds {number}"):
        encode(value, what="the answer")
    with pytest.raises(InvalidValueError, match=f"the question holds {number}"):
        digest_of(value, what="the question")


@pytest.mark.parametrize("broken", [0x00, 0xD800, 0xDFFF], ids=hex)
def test_text_that_cannot_be_stored_becomes_visible(broken: int) -> None:
    char = chr(broken)
    assert decode(encode(f"a{char}b", what="v")) == "a\ufffdb"
    assert decode(encode({f"k{char}": [char]}, what="v")) == {"k\ufffd": ["\ufffd"]}
    assert clean_text(f"a{char}b") == "a\ufffdb"


def test_a_whole_pair_of_surrogates_is_one_character_and_stays() -> None:
    assert decode(encode("🙂", what="v")) == clean_text("🙂") == "🙂"


@pytest.mark.parametrize("inside", [0, None, "x", [], {}], ids=repr)
def test_depth_is_limited_for_every_value_alike(inside: object) -> None:
    assert encode(deep(DEPTH_MAX, inside=inside), what="v")
    for levels in (DEPTH_MAX + 1, 200, 300, 5000):
        with pytest.raises(InvalidValueError, match=r"v is (nested deeper|not JSON)"):
            encode(deep(levels, inside=inside), what="v")


def test_many_values_side_by_side_are_not_deep() -> None:
    wide = [{"n": number} for number in range(1000)]
    assert decode(encode(wide, what="v")) == wide


def test_brackets_in_text_are_not_depth() -> None:
    assert decode(encode("[" * 1000, what="v")) == "[" * 1000


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 0, 2**64, -(2**63) - 1, 1j, {"deep": [object()]}],
    ids=["object", "function", "too large", "too small", "complex", "deep inside"],
)
def test_value_without_json_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidValueError, match="the answer is not JSON"):
        encode(value, what="the answer")


def test_size_limit_in_bytes_is_reported_with_both_figures() -> None:
    limit = SizeLimit(bytes_max=100, way_out="return a path")
    assert len(encode("x" * 98, what="v", limit=limit)) == 100
    with pytest.raises(InvalidValueError, match=r"v is 101 bytes of JSON, more than 100") as caught:
        encode("x" * 99, what="v", limit=limit)
    assert caught.value.hint == "return a path"
    with pytest.raises(InvalidValueError, match="more than 100"):
        encode("ä" * 50, what="v", limit=limit)


def test_secrets_are_redacted_before_anything_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back from a step is what a replay of it will see; its digest is its own."""
    forget_secrets(monkeypatch)
    value = {"plain": 'sk-"0f9e8d', "base64": "c2stIjBmOWU4ZA==", "n": 1}
    before = digest_of(value, what="v")
    assert decode(encode(value, what="v")) == value
    redaction.register("TOKEN", 'sk-"0f9e8d')
    marker = "[secret TOKEN, 10 characters]"
    recorded = encode(value, what="v")
    assert decode(recorded)["plain"] == marker
    assert decode(recorded)["base64"].startswith(marker)
    assert decode(recorded)["n"] == 1
    assert encode(decode(recorded), what="v") == recorded
    assert digest_of(value, what="v") == before


# --- digests


@given(st.dictionaries(ANY_TEXT, nested(ANY_TEXT), max_size=5), st.randoms())
def test_a_digest_does_not_depend_on_the_order_of_keys(given_: dict[str, Any], rng: Any) -> None:
    keys = list(given_)
    rng.shuffle(keys)
    shuffled = {key: given_[key] for key in keys}
    if len({clean_text(key) for key in keys}) == len(keys):  # else one of two alike wins
        assert digest_of(shuffled, what="v") == digest_of(given_, what="v")


@given(nested(STORABLE_TEXT), nested(STORABLE_TEXT))
def test_different_inputs_have_different_digests(one: Any, other: Any) -> None:
    same_text = orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        other, option=orjson.OPT_SORT_KEYS
    )
    assert (digest_of(one, what="v") == digest_of(other, what="v")) == same_text


def test_a_digest_is_the_same_before_and_after_the_record() -> None:
    for value, plain in RICH:
        assert digest_of("f", value, what="v") == digest_of("f", plain, what="v")


def test_a_digest_is_the_same_in_every_process() -> None:
    """Hashes of text, and so the order of sets, differ from one process to the next."""
    code = """
from datetime import datetime, timezone
from cortex.durable.codec import encode, input_of
names = {f"name-{n}" for n in range(50)}
given = [names, {"k": frozenset(names), "at": datetime(2025, 1, 1, tzinfo=timezone.utc)}, (1, 2.5)]
print(input_of({"given": given}, what="v").digest.hex(), encode(given, what="v"))
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(seen) == 1


def test_a_digest_never_changes_or_every_resumed_job_would_diverge() -> None:
    given_ = ["fetch", ("url", 1), {"b": 2.5, "a": None}]
    assert digest_of(*given_, what="v").hex() == "8a7b00265e5ffeac8f747800c8da4f6b"


@given(st.dictionaries(STORABLE_TEXT, STORABLE_TEXT | st.integers(-(2**53), 2**53) | st.none()))
def test_a_digest_does_not_depend_on_how_its_input_is_read(given_: dict[str, Any]) -> None:
    """Plain inputs are read faster."""
    text = encode(given_, what="v").encode()
    assert input_of(given_, what="v").digest == input_of_json(text).digest


# --- payloads


@given(st.dictionaries(STORABLE_TEXT, nested(STORABLE_TEXT), max_size=5))
def test_a_payload_keeps_its_meaning(payload: dict[str, Any]) -> None:
    assert orjson.loads(parse_payload(orjson.dumps(payload))) == payload


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": Infinity}', "not JSON"),
        ('{"a": 1e400}', "not JSON"),
        ('{"a": "\\ud800"}', "not JSON"),
        ('{"a": "\ud800"}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        ("[1]", "must be a JSON object, not list"),
        ("null", "must be a JSON object, not NoneType"),
        ('{"a": {"b": "\\u0000"}}', "payload.a.b holds a NUL"),
        ('{"\\u0000": 1}', "holds a NUL"),
        ('{"a": ' + "[" * DEPTH_MAX + "1" + "]" * DEPTH_MAX + "}", "nested deeper than 64"),
        ('{"a": ' + "[" * 5000, "not JSON"),
        ('{"a": "' + "x" * PAYLOAD_BYTES_MAX + '"}', "more than 262,144"),
        ('{"a": "' + "ä" * (PAYLOAD_BYTES_MAX // 2) + '"}', "more than 262,144"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_payload_that_cannot_be_one_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        parse_payload(text)


@given(st.text(st.characters(codec=None)) | st.binary())
def test_any_text_as_payload_gives_an_answer_for_people(text: str | bytes) -> None:
    with suppress(InvalidValueError):
        assert isinstance(orjson.loads(parse_payload(text)), dict)


# --- text for people


@given(ANY_TEXT, st.integers(min_value=1, max_value=50))
def test_clean_text_can_be_stored_and_keeps_to_its_limit(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit=limit)
    cleaned.encode()
    assert "\0" not in cleaned
    assert len(cleaned) <= limit
    if len(text) > limit:
        assert cleaned.endswith("…")


def test_clean_text_is_cut_to_the_maximum() -> None:
    assert len(clean_text("x" * (TEXT_MAX + 1))) == TEXT_MAX


# --- shapes


@attrs.frozen
class Order:
    item: str
    count: int = 1
    tags: list[str] = attrs.field(factory=list)


@pytest.mark.parametrize(
    "value, shape",
    [
        ("12", int),
        (1.5, int),
        (True, int),
        (None, int),
        ("false", bool),
        (1, bool),
        (5, str),
        (None, str),
        ("1.5", float),
        ("abc", list[str]),
        ({"a": 1}, list[str]),
        (["1"], list[int]),
        ({"a": "1"}, dict[str, int]),
        ({"item": "x", "count": "2"}, Order),
        ({"item": "x", "tags": "abc"}, Order),
        ({"item": "x", "more": 1}, Order),
        ({}, Order),
        ("x", Order),
        (None, Order),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused_and_never_repaired(value: Any, shape: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"@ given\b"):
        structure_discreetly(value, shape, what="given")


@pytest.mark.parametrize(
    "value, shape, expected",
    [
        (1, float, 1.0),
        (None, int | None, None),
        ("a", int | str, "a"),
        ([1, 2], tuple[int, ...], (1, 2)),
        ({"item": "x"}, Order, Order("x")),
        ([{"item": "x", "count": 2, "tags": ["t"]}], list[Order], [Order("x", 2, ["t"])]),
        ("2025-01-02T03:04:05+00:00", datetime, AT),
        ({"a": [1, None]}, Any, {"a": [1, None]}),
        ([1, "a"], list, [1, "a"]),
    ],
    ids=repr,
)
def test_a_value_takes_its_declared_shape(value: Any, shape: Any, expected: Any) -> None:
    found = structure_discreetly(value, shape, what="given")
    assert (found, type(found)) == (expected, type(expected))


def test_recorded_output_structures_back_to_its_type() -> None:
    report = Report("t", AT, ("a", "b"), {"n": 1})
    assert structure_discreetly(decode(encode(report, what="v")), Report, what="v") == report
