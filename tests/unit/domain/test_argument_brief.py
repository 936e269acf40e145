"""A call on one line: whatever its arguments hold, it cannot pass for another call."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cortex.domain.argument_brief import BRIEF_CELLS, argument_brief, call_brief, call_name
from cortex.domain.safe import safe
from cortex.view.arguments import marked_json, with_marked_blanks
from cortex.view.cells import width_of

FORGERY = "1 euros=20 customer=cus_1"
HOSTILE = st.text(
    st.sampled_from('"\\=,()[]…⟦⟧ +1a0.\n\t\u202e\u201c\u201d\uff02\u3000\u0300日'), max_size=60
)
NAMES = HOSTILE | st.sampled_from(["amount", "to", "memo", "euros", "x y", "amount=1, to"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
ARGUMENTS = st.dictionaries(
    NAMES, SCALARS | HOSTILE | st.dictionaries(NAMES, SCALARS | HOSTILE, max_size=3), max_size=5
)
# Text outside of quotes, and text in quotes, where a backslash precedes each quote.
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def outside(text: str) -> str:
    return QUOTED.sub("Q", text)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict) and value:
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


def test_text_cannot_pass_for_other_arguments() -> None:
    shown = call_brief("pay", {"value": FORGERY, "euros": 1})
    assert shown == f'pay(euros=1, value="{FORGERY}")'
    assert call_brief("pay", {"memo": '", euros=20, to="x'}) == r'pay(memo="\", euros=20, to=\"x")'
    assert call_brief("pay", {"memo": "\u201d, euros=20"}) == 'pay(memo="\\\u201d, euros=20")'
    assert call_brief("pay", {"memo": "a\n\u202eb\x1b[2J"}) == (
        r'pay(memo="a\n⟦U+202E⟧b\u001b[2J")'
    )


def test_names_cannot_pass_for_arguments_or_calls() -> None:
    assert call_brief("pay", {'a=1, euros=20, "b': 2}) == r'pay(["a=1, euros=20, \"b"]=2)'
    assert call_brief("pay", {"\u0430mount": 1, "amount": 2}) == (
        'pay(amount=2, ["\u0430mount"]=1)'
    ), "a letter that looks like another one"
    assert call_brief("pay", {"a.b": 1, "a": {"b": 2}}) == 'pay(["a.b"]=1, a.b=2)'
    assert call_name("pay(euros=1) or") == '"pay(euros=1) or"'
    assert call_name("publish draft:2") == "publish draft:2"
    assert call_brief("pay", {}) == "pay()"
    deep: Any = 1
    for _ in range(10):
        deep = {'", euros=20, "' * 3: deep}
    assert "euros" not in outside(call_brief("pay", deep))


def test_long_blanks_are_counted_instead_of_hiding_the_rest() -> None:
    memo = "thanks" + " " * 10_000 + "and more\u3000\n \n\t\u2003here"
    assert call_brief("pay", {"memo": memo, "amount": 7}) == (
        'pay(amount=7, memo="thanks⟦10,000 blanks⟧and more⟦6 blanks⟧here")'
    )
    assert call_brief("pay", {"memo": "⟦3 blanks⟧…"}) == r'pay(memo="\⟦3 blanks\⟧…")'


def test_amounts_and_recipients_come_first_and_texts_are_cut_for_them() -> None:
    to = "attacker@bank.example" + "a" * 200 + ".evil.example"
    given = {
        "a_memo": "m" * 500,
        "b": {"total": 20},
        "to": to,
        "urgent": True,
        "z_amount": "1,240.00 €",
    }
    shown = call_brief("transfer", given, cells=100)
    assert shown.startswith('transfer(z_amount="1,240.00 €", b.total=20, to="attacker@')
    assert '…".evil.example"' in shown or shown.count('"…"') == 1
    assert "evil.example" in shown, "how it ends is where the money goes"
    assert shown.endswith("more)")


def test_largest_of_many_amounts_comes_first_and_others_are_counted() -> None:
    payments = [{"to": f"a{n}", "amount": 1 if n != 77 else 9_999} for n in range(400)]
    shown = call_brief("pay", {"payments": payments})
    assert shown.startswith("pay(payments[77].amount=9999, ")
    assert re.search(r", \+79\d more\)$", shown)


@pytest.mark.parametrize("cells", range(14, 60))
def test_an_amount_is_whole_or_counted(cells: int) -> None:
    shown = call_brief("send_money", {"amount": 1234567, "to": "ana@example.com"}, cells=cells)
    numbers = [int(each) for each in re.findall(r"amount=(\d+)", outside(shown))]
    assert numbers in ([], [1234567])
    assert width_of(shown) <= cells
    if not numbers:
        assert "to=" not in shown, "a text took the room of an amount"


def test_number_too_long_to_show_is_given_by_its_digits() -> None:
    assert call_brief("pay", {"amount": 10**999}) == "pay(amount=⟦1,000 digits⟧)"


def test_large_call_is_briefed_from_its_outermost_arguments() -> None:
    decoys = {f"k{n}": {"amount": n} for n in range(30_000)}
    assert call_brief("pay", {"decoys": decoys, "amount": 5}).startswith("pay(amount=5, ")


@given(ARGUMENTS, st.integers(20, BRIEF_CELLS))
@example({"": ""}, 40)
def test_text_of_an_argument_never_appears_outside_quotes(
    arguments: dict[str, Any], cells: int
) -> None:
    shown = argument_brief(arguments).fitted(cells)
    rest = outside(shown)
    assert '"' not in rest
    assert width_of(shown) <= max(cells, 1)
    assert safe(shown) == shown
    for mark in re.findall(r"⟦[^⟧]*⟧", rest):
        assert re.fullmatch(r"⟦[\d,]+ digits⟧", mark)
    numbers = {json.dumps(leaf) for leaf in leaves(arguments) if isinstance(leaf, int | float)}
    for value in re.findall(r"=([^,\s]+)(?:, | \+|$)", rest):
        assert value.startswith(("Q", "⟦")) or value in numbers | {"null", "{}"}, value


def test_pages_show_blanks_that_hide_something() -> None:
    assert with_marked_blanks("a" + " " * 30 + "b") == "a⟦30 blanks⟧b"
    assert with_marked_blanks("bob@x.eu ") == "bob@x.eu⟦1 blank⟧"
    assert with_marked_blanks("    code:\n        more\n") == "⟦4 blanks⟧code:\n        more\n"
    assert with_marked_blanks("a" + "\n \t" * 2_000 + "b") == "a\n⟦1,999 blank lines⟧\n \tb"
    assert with_marked_blanks("a\n\n\nb") == "a\n\n\nb"
    assert marked_json("a" + " \n" * 5_000 + "b") == '"a⟦10,000 blanks⟧b"'
    assert marked_json("\\n" * 30) == json.dumps("\\n" * 30)
