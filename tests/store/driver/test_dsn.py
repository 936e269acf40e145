"""Addresses: what people and the process list may see of them."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cortex.domain.errors import CortexError, UsageError
from cortex.postgres.database import Profile
from cortex.postgres.dsn import check, has_password, hosts, names_server, redact
from tests.support.servers.postgres import run_asyncio

ROOT = Path(__file__).parents[3]
SECRET = "hunter2-secret"
# All that means something in an address, and enough of everything else.
ODD = st.text(st.sampled_from("ab1@:/?#[]%&=+ ';,\\\"\t\n℀é") | st.characters(codec="utf-8"))
SHAPES = [
    "postgresql://user:{}@host:5432/db",
    "postgres://user:{}@host/db?sslmode=require",
    "postgresql://user:{}@/db?host=/tmp/socket",
    "postgresql://user:{}@one:1,two:2/db",
    "postgresql://:{}@host/db",
    "postgresql://user:{}@[::1]:5432/db",
    "user:{}@host/db",
    "//user:{}@host/db",
]
PARAMETERS = [
    "postgresql://host/db?password={}",
    "postgresql://user@host/db?sslmode=require&sslpassword={}&x=1",
    "postgresql://host/db?pass%77ord={}",
    "postgresql://host/db?PASSWORD={}",
    "postgresql:///db?passfile={}",
]


@pytest.mark.parametrize("shape", SHAPES)
@given(before=ODD, after=ODD)
def test_a_password_never_shows_even_if_it_was_not_quoted(
    shape: str, before: str, after: str
) -> None:
    dsn = shape.format(f"{before}{SECRET}{after}")
    assert SECRET not in redact(dsn)
    assert SECRET not in repr(Profile(dsn=dsn))
    assert has_password(dsn)


@pytest.mark.parametrize("shape", SHAPES[:6])
@given(password=ODD)
def test_no_part_of_a_password_shows(shape: str, password: str) -> None:
    for written in (password, quote(password, safe="")):
        parts = [part for part in re.split(r"\W", password) if len(part) > 3]
        assume(not any(part in shape for part in parts))
        shown = redact(shape.format(written))
        assert not any(part in shown for part in parts)


@pytest.mark.parametrize("shape", PARAMETERS)
@given(password=ODD)
def test_password_in_a_parameter_is_redacted(shape: str, password: str) -> None:
    dsn = shape.format(quote(f"{SECRET}{password}", safe=""))
    assert SECRET not in redact(dsn)
    assert has_password(dsn)


@pytest.mark.parametrize(
    "written", ["={}", "='{}'", "='a b{}'", r"='a\' b{}'", "='never closed {}", " = {}"]
)
def test_keyword_dsn_hides_its_password(written: str) -> None:
    dsn = f"host=h password{written.format(SECRET)}"
    assert SECRET not in redact(dsn)
    assert redact(dsn).startswith("host=h password")
    assert has_password(dsn)


@pytest.mark.parametrize(
    "dsn, shown",
    [
        ("postgresql://me:x@h:5432/d", "postgresql://me:***@h:5432/d"),
        ("postgresql://me@h/d", "postgresql://me@h/d"),
        ("postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql://me@/d?host=/var/run", "postgresql://me@/d?host=/var/run"),
        ("localhost:5432/d", "localhost:5432/d"),
        ("host=h dbname=d", "host=h dbname=d"),
    ],
)
def test_rest_of_a_dsn_is_shown(dsn: str, shown: str) -> None:
    assert redact(dsn) == shown
    assert has_password(dsn) == ("***" in shown)


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "mysql://h/d",
        "localhost",
        f"host=h password={SECRET}",
        f"postgresql://u:{SECRET}/x@h/d",
        f"postgresql://u:{SECRET}#x@h/d",
        f"postgresql://u:[{SECRET}@h/d",
        f"postgresql://u:{SECRET}@h:port/d",
        f"postgresql://u:{SECRET}@h:99999/d",
    ],
)
def test_malformed_address_is_refused_with_its_source(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(dsn, source="CORTEX_DSN")
    assert caught.value.message.startswith("CORTEX_DSN ")
    assert SECRET not in f"{caught.value.message}{caught.value.hint}"


def test_an_address_is_returned_as_it_is() -> None:
    assert check("postgres://u:p@h/d", source="x") == "postgres://u:p@h/d"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:{SECRET}/x@127.0.0.1:1/d",
        f"postgresql://u:x@{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:x@{SECRET}:y@127.0.0.1/d",
        f"postgresql://u:[{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:a@[{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:{SECRET}@127.0.0.1:1/d?sslmode=what",
        f"postgresql://127.0.0.1:1/d?password={SECRET}&port=x",
        f"postgresql://u:{SECRET}@/d?host=/no/such/folder",
    ],
)
def test_connecting_fails_for_people_and_without_the_password(dsn: str) -> None:
    with pytest.raises(CortexError) as caught:
        run_asyncio(Profile(dsn=dsn).connect)
    shown = f"{caught.value!r} {caught.value.message} {caught.value.hint}"
    assert SECRET not in shown, shown


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no process list to read")
@pytest.mark.parametrize(
    "arguments, kept, moved",
    [
        (["jobs", "--dsn", "{secret}", "ls"], ["jobs", "ls"], True),
        (["jobs", "--dsn={secret}", "ls"], ["jobs", "ls"], True),
        (["--dsn", "{bad}", "ls"], ["ls"], True),
        (["--dsn", "{open}", "ls"], ["--dsn", "{open}", "ls"], False),
        (["--dsn={open}", "ls"], ["--dsn={open}", "ls"], False),
        (["ls", "--dsn"], ["ls", "--dsn"], False),
        (["ls"], ["ls"], False),
    ],
)
def test_a_password_leaves_the_process_list(
    tmp_path: Path, arguments: list[str], kept: list[str], moved: bool
) -> None:
    """A separate program stands in for ours and prints what others can read of it."""
    secrets = {
        "secret": f"postgresql://u:{SECRET}@h/d",
        "bad": f"postgresql://u:{SECRET}#@h/d",
        "open": "postgresql://u@h/d",
    }
    starter = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from cortex.postgres.dsn import hide_from_process_list\n"
        "hide_from_process_list(sys.argv[1:], mark='MARK')\n"
        "print(open('/proc/self/cmdline').read().split('\\0')[3:-1])\n"
        "print(os.environ.get('CORTEX_DSN'))\n"
        "print('MARK' in os.environ)"
    )
    said = subprocess.run(
        [sys.executable, "-c", starter, *(word.format(**secrets) for word in arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[0] == str([word.format(**secrets) for word in kept])
    assert (SECRET in said[1]) == moved == (said[2] == "True")
    if moved:
        assert said[1] in secrets.values()


@pytest.mark.parametrize(
    "dsn, expected",
    [
        ("postgresql://user:p%40ss@one:1,two:2/db", [("one", 1), ("two", 2)]),
        ("postgresql://one,two/db", [("one", None), ("two", None)]),
        ("postgresql://[::1]:5433,[fe80::2]/db", [("::1", 5433), ("fe80::2", None)]),
        ("postgresql://one:1,two/db?port=7", [("one", 7), ("two", 7)]),
        ("postgresql:///db?host=/run/a,/run/b&port=1,2", [("/run/a", 1), ("/run/b", 2)]),
        ("postgresql://%2Frun%2Fa,two/db", [("/run/a", None), ("two", None)]),
        ("postgresql://one:1/db", []),
        ("postgresql:///db?host=/run/a", []),
        ("postgresql:///db", []),
    ],
)
def test_an_address_may_name_several_hosts(
    dsn: str, expected: list[tuple[str, int | None]]
) -> None:
    assert hosts(check(dsn, source="--dsn")) == expected
    assert not names_server(dsn)
    assert names_server(f"{dsn}{'&' if '?' in dsn else '?'}target_session_attrs=any")


@pytest.mark.parametrize(
    "places", ["one:x,two", "one:1,two:99999", "one,,two", "one:1,::1", "one,two/db?port=1,2,3"]
)
def test_hosts_that_make_no_sense_are_refused(places: str) -> None:
    with pytest.raises(UsageError, match="has a bad host or port"):
        check(f"postgresql://{places}", source="--dsn")
