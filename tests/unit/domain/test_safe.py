import unicodedata
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cortex.domain.safe import MARKS_MAX, safe

TREACHEROUS = st.sampled_from(
    [
        *("\x1b[2J", "\x1b]52;c;aGk=\x07", "\r", "\x9b31m", "\u202e", "\u200b", "\u2066"),
        *("\ufeff", "\U000e0041", "\u2028", "\u0301" * 9, "\t", "\n", "\u3164", "\x7f", "\ud800"),
    ]
)
TEXT = st.lists(st.one_of(st.text(), TREACHEROUS)).map("".join)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain words", "plain words"),
        ("", ""),
        ("naïve 日本語 Ελλάδα", "naïve 日本語 Ελλάδα"),
        ("\x1b[2J", "⟦U+001B⟧[2J"),
        ("\x1b]52;c;aGk=\x07", "⟦U+001B⟧]52;c;aGk=⟦U+0007⟧"),
        ("\x9b31m", "⟦U+009B⟧31m"),
        ("\x7f", "⟦U+007F⟧"),
        ("pay \u202etxt.exe", "pay ⟦U+202E⟧txt.exe"),
        ("a\u200bb\u2060c\ufeff", "a⟦U+200B⟧b⟦U+2060⟧c⟦U+FEFF⟧"),
        ("soft\u00adhyphen", "soft⟦U+00AD⟧hyphen"),
        ("\U000e0068\U000e0069", "⟦U+E0068⟧⟦U+E0069⟧"),
        ("x\ufe01y", "x⟦U+FE01⟧y"),
        ("\u3164", "⟦U+3164⟧"),
        ("over\rwritten", "over⟦U+000D⟧written"),
        ("half \ud83d", "half ⟦U+D83D⟧"),
    ],
)
def test_hidden_and_control_characters_become_visible(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    "text, shown", [("⚠️ hot", "⚠ hot"), ("👩‍💻", "👩💻"), ("❤️‍🔥", "❤🔥"), ("✔️", "✔")]
)
def test_emoji_stay_pictures(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_a_joiner_between_letters_is_shown() -> None:
    assert safe("pay\u200dpal") == "pay⟦U+200D⟧pal"


def test_line_breaks_become_the_callers_newline() -> None:
    assert safe("a\r\nb\nc") == "a b c"
    assert safe("a\r\nb\nc", newline="\n") == "a\nb\nc"
    assert safe("a\tb", newline="\n") == "a    b"


def test_marks_do_not_pile_up() -> None:
    letter = "e" + "\u0301" * MARKS_MAX
    assert safe(letter) == letter
    assert safe(letter + "\u0301") == letter + "⟦U+0301⟧"


@pytest.mark.parametrize("mark", ["\u0e34", "\u20dd", "\u0941", "\u0903", "\u1161", "\U0001f3fd"])
def test_zero_width_marks_are_bounded(mark: str) -> None:
    shown = safe("a" + mark * 10_000)
    assert cell_len(shown) >= 10_000, "each one that is too many is seen"


def test_every_zero_width_character_is_bounded() -> None:
    for char in map(chr, chain(range(0x2_0000), range(0xE_0000, 0xE_1000))):  # all such are there
        if not char.isascii() and cell_len(char) == 0:
            assert safe("a" + char * 20) != "a" + char * 20, f"U+{ord(char):04X}"


@pytest.mark.parametrize("word", ["လျှော့", "မြွှေ", "กำลังใช้ปุ่มนี้", "क्त्वा", "שָׁלוֹם", "👍🏽"])
def test_scripts_that_need_marks_are_untouched(word: str) -> None:
    assert safe(word) == word


@given(TEXT)
def test_safe_text_has_no_control_or_hidden_characters(text: str) -> None:
    for char in safe(text):
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(TEXT)
def test_only_newlines_break_lines(text: str) -> None:
    kept = safe(text, newline="\n")
    assert kept.count("\n") == text.count("\n")
    assert kept.splitlines() == kept.split("\n") or kept.endswith("\n") or not kept


@given(TEXT)
def test_safe_is_idempotent(text: str) -> None:
    assert safe(safe(text)) == safe(text)
    assert safe(safe(text, newline="\n"), newline="\n") == safe(text, newline="\n")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_ascii_is_untouched(text: str) -> None:
    assert safe(text) == text
