"""Text without secrets, however they are written in it; JSON stays JSON."""

import base64
import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from threading import Thread
from urllib.parse import quote, quote_plus

import markupsafe
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain import redaction
from cortex.domain.errors import InvalidValueError
from cortex.domain.redaction import VALUE_CHARS_MIN, VALUES_MAX, Redactor, excerpt

PLAIN = "sk-3f9a7c21d0e4"
AWKWARD = 'pä"ss\\w/ö+rd \n%2F&<x>'
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=VALUE_CHARS_MIN
)
WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": lambda value: json.dumps({"a": [value]}),
    "JSON of orjson": lambda value: orjson.dumps({value: value}).decode(),
    "JSON in JSON": lambda value: json.dumps([json.dumps({"a": value})]),
    "JSON in JSON of orjson": lambda value: orjson.dumps([orjson.dumps([value]).decode()]).decode(),
    "percent": quote,
    "percent, slashes too": lambda value: quote(value, safe=""),
    "a form": quote_plus,
    "percent in small letters": lambda value: re.sub(
        "%..", lambda code: code[0].lower(), quote(value)
    ),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "basic authentication": lambda value: base64.b64encode(f"me:{value}".encode()).decode(),
    "base64 in the middle": lambda value: base64.b64encode(f"abcde{value}xyz".encode()).decode(),
    "base64 of URLs": lambda value: base64.urlsafe_b64encode(f"?{value}".encode()).decode(),
    "HTML": lambda value: f"<td>{html.escape(value)}</td>",
    "HTML of Jinja": lambda value: str(markupsafe.escape(value)),
    "JSON of PHP": lambda value: json.dumps([value]).replace("/", "\\/"),
    "hexadecimal": lambda value: value.encode().hex(),
    "HEXADECIMAL": lambda value: value.encode().hex().upper(),
    "repr": repr,
    "an error": lambda value: str(KeyError(value)),
}


def knowing(**values: str) -> Redactor:
    redactor = Redactor()
    for name, value in values.items():
        redactor.register(name, value)
    return redactor


@pytest.mark.parametrize("value", [PLAIN, AWKWARD], ids=["plain", "awkward"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
def test_a_secret_is_found_however_it_is_written(write: Callable[[str], str], value: str) -> None:
    redactor = knowing(TOKEN=value)
    written = write(value)
    for text in (written, f"before {written} after", f"{written}{written}"):
        clean = redactor.redact(text)
        assert f"[secret TOKEN, {len(value)} characters]" in clean
        assert redactor.secret_in(text) == "TOKEN"
        assert value not in clean
        assert quote(value) not in clean
        # Not even most of it: what base64 holds of a value's edges is less than two bytes.
        assert base64.b64encode(value.encode()).decode()[2:-4] not in clean
        assert redactor.redact(clean) == clean


def test_redactor_without_secrets_returns_the_same_object() -> None:
    redactor = Redactor()
    text = "anything " * 10
    texts = [text, None]
    assert not redactor.knows_any()
    assert redactor.redact(text) is text
    assert redactor.redact_each(texts) is texts
    assert redactor.secret_in(text) is None


def test_text_without_a_secret_is_the_same_object() -> None:
    redactor = knowing(TOKEN=PLAIN)
    texts = ["harmless", None, 5, b"bytes " + PLAIN.encode()]
    assert redactor.redact_each(texts) is texts
    assert redactor.redact(texts[0]) is texts[0]  # type: ignore[arg-type]


def test_redacting_a_list_changes_only_texts() -> None:
    redactor = knowing(TOKEN=PLAIN)
    given_ = [f"a {PLAIN}", None, 5, PLAIN.encode(), "b"]
    marker = "[secret TOKEN, 15 characters]"
    assert redactor.redact_each(given_) == [f"a {marker}", None, 5, PLAIN.encode(), "b"]


@given(TEXT, VALUES, TEXT)
def test_redaction_removes_every_value_and_is_idempotent(
    before: str, value: str, after: str
) -> None:
    redactor = knowing(TOKEN=value)
    clean = redactor.redact(before + value + after)
    assert redactor.redact(clean) == clean
    marker = f"[secret TOKEN, {len(value)} characters]"
    assert marker in clean or value in marker
    if value not in marker:
        assert value not in clean.replace(marker, "\0")


@given(
    VALUES,
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=8,
    ),
)
def test_redacted_json_stays_valid_and_otherwise_unchanged(value: str, other: object) -> None:
    redactor = knowing(TOKEN=value)
    text = json.dumps({"key": value, "other": other})
    clean = json.loads(redactor.redact(text))
    if value != "other" and value not in json.dumps(other) + json.dumps(other, ensure_ascii=False):
        assert clean["other"] == other or "[secret" in json.dumps(clean["other"])
    assert value not in str(clean.get("key", "")).replace(f"[secret TOKEN, {len(value)} cha", "")


@pytest.mark.parametrize(
    "value, text, clean",
    [
        ("12345678", '{"pin":12345678,"n":123456789}', '{"pin":"[…]","n":123456789}'),
        ("12345678", '{"pin":-12345678}', '{"pin":"[…]"}'),
        ("nabcdefgh", '["x\\nabcdefgh"]', '["x\\nabcdefgh"]'),
        ("nabcdefgh", '["nabcdefgh", 1]', '["[…]", 1]'),
        ('abc","def', '["abc","def"]', '["abc","def"]'),
        ("true, false", "[true, false]", "[true, false]"),
        ("password", '{"password": "x"}', '{"[…]": "x"}'),
        ("password", '{"password": broken', '{"[…]": broken'),
        ("characters", "[secret A, 10 characters]", "[secret A, 10 characters]"),
    ],
    ids=str,
)
def test_secret_made_of_json_syntax_does_not_break_json(value: str, text: str, clean: str) -> None:
    marker = f"[secret A, {len(value)} characters]"
    assert knowing(A=value).redact(text) == clean.replace("[…]", marker)


def test_the_longer_one_of_two_is_named() -> None:
    redactor = knowing(A="abcdefgh", B="abcdefghijkl")
    assert redactor.redact("x abcdefghijkl") == "x [secret B, 12 characters]"
    assert redactor.redact("x abcdefghijk") == "x [secret A, 8 characters]ijk"


def test_a_new_value_of_the_same_name_is_hidden_beside_the_old_one() -> None:
    redactor = knowing(A="old value 1")
    redactor.register("A", "new value 22")
    clean = redactor.redact("old value 1, new value 22")
    assert clean == "[secret A, 11 characters], [secret A, 12 characters]"


def test_short_secret_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidValueError, match="secret PIN has 4 characters") as caught:
        Redactor().register("PIN", "hjkl")
    assert "hjkl" not in f"{caught.value} {caught.value.hint}"


def test_registered_pattern_is_redacted() -> None:
    redactor = knowing(A=PLAIN)
    redactor.register_pattern("API token", "cortex_[0-9a-f]{64}")
    token = "cortex_" + "0f" * 32
    assert redactor.redact(f"{token} {PLAIN}") == (
        "[secret API token, 71 characters] [secret A, 15 characters]"
    )
    assert redactor.redact(json.dumps({"a": token})) == '{"a": "[secret API token, 71 characters]"}'
    assert redactor.secret_in(token) == "API token"


def test_values_used_longest_ago_are_forgotten_when_there_are_too_many() -> None:
    redactor = knowing(FIRST="the first value", KEPT="the kept value")
    for number in range(VALUES_MAX - 1):
        if number == VALUES_MAX // 2:
            redactor.register("KEPT", "the kept value")
        redactor.register("OTHER", f"value {number:05}")
    assert redactor.redact("the first value") == "the first value"
    assert redactor.redact("the kept value") == "[secret KEPT, 14 characters]"
    assert redactor.redact("value 00000") == "[secret OTHER, 11 characters]"


def test_threads_may_register_at_once() -> None:
    redactor = Redactor()
    values = [f"value of thread {number:03}" for number in range(40)]
    threads = [Thread(target=redactor.register, args=("T", value)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "value" not in redactor.redact("\n".join(values))


def test_the_process_shares_one_registry() -> None:
    """In a process of its own: what is known there stays known."""
    code = """
from cortex.domain import redaction
from cortex.durable.codec import encode
from cortex.domain.redaction import clean_text
assert not redaction.knows_any()
redaction.register("TOKEN", "sk-3f9a7c21")
print(encode({"b": "a sk-3f9a7c21"}, what="v"), clean_text("x" * 8 + " sk-3f9a7c21", limit=14))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == '{"b":"a [secret TOKEN, 11 characters]"} xxxxxxxx [sec…\n'


@given(TEXT, VALUES, TEXT, st.data())
def test_cut_text_never_shows_half_a_secret(
    before: str, value: str, after: str, data: st.DataObject
) -> None:
    redactor = knowing(TOKEN=value)
    text = before + value + after
    at = data.draw(st.integers(len(before) + 1, len(before) + len(value) - 1))
    shown = at - redactor.begun_in(text[:at])
    assert shown <= len(before) or value in text[:shown]
    lost = at + redactor.ended_in(text[at:])
    assert lost >= len(before) + len(value)


def test_only_a_possible_secret_at_the_edge_is_held_back() -> None:
    redactor = knowing(TOKEN="correct horse battery")
    assert redactor.begun_in("the correct horse b") == len("correct horse b")
    assert redactor.begun_in("the correct horse is") == 0
    assert redactor.begun_in("correct horse battery") == 0
    assert redactor.ended_in("battery is it") == len("battery")
    assert redactor.ended_in("is it") == 0
    assert Redactor().begun_in("anything") == Redactor().ended_in("anything") == 0


def test_an_excerpt_is_one_short_line_and_cuts_no_secret() -> None:
    value = "hook-5b1d77e02c44"
    redaction.register("EXCERPT", value)
    text = excerpt("<html>\r\n\x1b[31m\tbusy \0 " + "x" * 160 + f" {value} {value}")
    assert (len(text), text[:20], text[-1]) == (200, "<html> [31m busy \ufffd x", "…")
    assert value[:4] not in text
    assert excerpt(" \n ") == ""
