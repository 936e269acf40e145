"""Commands that are copied: what a shell makes of them, and a terminal that pastes them."""

import subprocess

import pytest

from cortex_tui.shell import line
from tests.support.hostile import HOSTILE, LINES, treacherous

WORDS = (
    *("", "plain", "two words", "-", "a'b", 'a"b', "$(id)", "`id`", "!!", "*", "~", "a;b", "a\\b"),
    *("it's\n; rm -rf ~", "\x15\x7f\x7fid\r", "\x1b[201~id\n1", "tea\u202e7", "é\x9b2J", "\\'\t"),
    *(HOSTILE, LINES),
)


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_pasted_command_is_read_literally_by_the_shell(word: str) -> None:
    typed = line(("printf", "%s|", word, word))
    assert treacherous(typed) == []
    ran = subprocess.run(["/bin/bash", "-c", typed], capture_output=True, check=True)
    assert ran.stdout.decode() == f"{word}|{word}|"
