"""Whatever text a person gives a command: it is taken, or refused in one line that names it.

Text comes as programs get it: bytes that are no UTF-8 are halves of surrogate pairs by then. NUL,
which no shell can pass, is among it, too: what reads the options may one day come from elsewhere.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from cortex.cli.failures import EXIT_CODES
from cortex.cli.main import cli
from cortex.domain.redaction import storable
from tests.support.command_line import Cortex
from tests.support.hostile import HOSTILE, treacherous
from tests.support.in_process import InProcess
from tests.support.people import me

# They run until they are stopped, for minutes, or need a person at a terminal.
ENDLESS = {"approvals watch", "demo", "dev", "up"}
NOT_FOR_TEXT = {"edit_in_editor"}
WORDS = [HOSTILE, "", " ", "-", "--", "@", "@/", "\0", "a\0b", "\ud800", "a\udcffb", "\udc80" * 300]
WORDS += ["x" * 5_000, "%s%n", "';--", "\\", "{", '{"a": "\\u0000"}', '{"a": "\\ud800"}', "..", "/"]
WORDS += ["llm:x", "tool:\0", "tenant:\udcff:usd:run", "%", "\ufeff", "é", "0", "null", "1e999"]
STORABLE = [word for word in WORDS if storable(word) == word]
texts = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(STORABLE),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
    st.text(st.characters(codec=None), max_size=4),
)


@attrs.frozen
class Verb:
    """A command and what it takes."""

    path: str
    arguments: tuple[click.Argument, ...]
    options: tuple[click.Option, ...]


def verbs(group: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[Verb]:
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            inner = group.get_command(context, name)
            assert inner is not None
            yield from verbs(inner, (*path, name))
    elif " ".join(path) not in ENDLESS and path[0] != "bench":
        yield Verb(
            " ".join(path),
            tuple(each for each in group.params if isinstance(each, click.Argument)),
            tuple(
                each
                for each in group.params
                if isinstance(each, click.Option) and each.name not in NOT_FOR_TEXT
            ),
        )


VERBS = list(verbs())


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    """A command whose texts are anything; what is no text is valid, so that texts are looked at."""
    verb = draw(st.sampled_from(VERBS))
    words = verb.path.split()
    for option in verb.options:
        if option.is_flag:
            words += [option.opts[0]] if option.name in ("yes", "is_agreed") else []
        elif option.required or draw(st.booleans()):
            words += [f"{option.opts[-1]}={draw(_values(option))}"]
    words += [f"--columns={draw(texts)}"] if draw(st.integers(0, 9)) == 0 else []
    words += ["--json", "--"]
    for argument in verb.arguments:
        words += [draw(_values(argument)) for _ in range(1 if argument.nargs == 1 else 2)]
    return words


def _values(parameter: click.Parameter) -> st.SearchStrategy[str]:
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return st.sampled_from([str(getattr(each, "value", each)) for each in kind.choices])
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return st.just("1")
    return texts


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=commands())
@pytest.mark.timeout(240)
def test_any_text_is_accepted_or_refused_in_one_line(
    database: str, tmp_path: Path, words: list[str]
) -> None:
    kept = InProcess(database, tmp_path)(*words)
    event(f"{words[0]}: {kept.code}")
    assert kept.code in EXIT_CODES
    assert not treacherous(kept.out + kept.err)
    if kept.code not in (0, 8):
        output = json.loads(kept.err.splitlines()[-1])["error"]
        assert output["code"] != "internal", output
        assert output["message"]
        assert "\n" not in output["message"]
        assert "database cannot hold" not in output["message"], "refused, but it names nothing"
    elif kept.out:
        json.loads(kept.out)


def test_commands_with_texts_are_covered() -> None:
    assert {"jobs submit", "agents show", "budgets set", "dead retry"} <= {v.path for v in VERBS}


BYTES = (
    (b"jobs", b"submit", b"noop", b"--tenant", b"a\xff"),
    (b"budgets", b"set", b"--agent", b"a\xff", b"--usd", b"1", b"--reason", b"why"),
    (b"jobs", b"cancel", b"\xff\xfe", b"--yes"),
    (b"jobs", b"ls", b"--type", b"\xff"),
    (b"facts", b"--source", b"\xff"),
    (b"agents", b"apply", b"\xff.yaml"),
    (b"jobs", b"submit", b"noop", b"--payload", b'{"a": "\xff"}'),
)


def test_bytes_that_are_no_text_are_refused(cortex: Cortex) -> None:
    for arguments in BYTES:
        ended = cortex(*map(os.fsdecode, arguments))
        assert ended.code in (0, 2, 3), arguments
        assert "fault in Cortex" not in ended.err, arguments
        errors = [line for line in ended.err.splitlines() if line.startswith("error:")]
        assert len(errors) <= 1, arguments


def test_shell_bytes_are_decoded_as_in_process(cortex: Cortex) -> None:
    """Python's own decoding of its arguments, which only its start has."""
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"cortex", *BYTES[0]],
        env=cortex.environ(None),
        capture_output=True,
        check=False,
    )
    ended = cortex(*map(os.fsdecode, BYTES[0]))
    assert (done.returncode, done.stderr.decode()) == (ended.code, ended.err)


@pytest.mark.parametrize("name", [b"a\xffb", "\x1b[2J\u202e".encode()], ids=["bytes", "hostile"])
def test_the_environment_names_nobody(cortex: Cortex, name: bytes) -> None:
    variables = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), os.fsdecode(name))
    command = ["breakers", "open", "tool:x", "--yes", "--reason", "why", "--json"]
    ended = cortex(*command, env=variables)
    assert ended.code == 0
    assert ended.document["breakers"][0]["forced_by"] == me()
