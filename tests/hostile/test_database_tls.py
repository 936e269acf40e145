"""Nothing is sent in the clear to a server on another machine unless the operator says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.domain.errors import UnavailableError, UsageError
from cortex.postgres.database import Profile
from cortex.postgres.dsn import is_local, remote_tls, required_tls
from cortex.view.doctor import of_tls
from tests.support.servers.postgres import run_asyncio
from tests.support.servers.smtp_server import KEY_AND_CERTIFICATE
from tests.support.servers.tls_front import TlsFront, tls_front

REMOTE = "127.1"
"""Loopback in a spelling that only resolvers know: for Cortex the name of another machine."""


@pytest.fixture(autouse=True)
def no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGHOST", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost that signs itself."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_text(KEY_AND_CERTIFICATE)
    return path


@pytest.fixture(scope="module", params=["without TLS", "with TLS"])
def front(
    request: pytest.FixtureRequest, shared_database: str, certificate: Path
) -> Iterator[TlsFront]:
    """The server as it is reached over the network."""
    with_tls = request.param == "with TLS"
    with tls_front(shared_database, certificate=certificate if with_tls else None) as running:
        yield running


def address(front: TlsFront, host: str, query: str = "") -> str:
    return f"postgresql://postgres@{host}:{front.port}/postgres{query}"


def is_encrypted(front: TlsFront, dsn: str) -> bool:
    """Connect as every part of Cortex does; return whether the connection was encrypted."""

    async def run() -> None:
        connection = await Profile(dsn=dsn, role=None).connect()
        connection.terminate()

    front.sessions.clear()
    run_asyncio(run)
    return front.sessions[-1]


@pytest.mark.parametrize(
    "host, query, without_tls, with_tls",
    [
        pytest.param("127.0.0.1", "", False, True, id="loopback takes what there is"),
        pytest.param("localhost", "", False, True, id="so does its name"),
        pytest.param(REMOTE, "", None, True, id="another machine needs TLS"),
        pytest.param(REMOTE, "?sslmode=disable", False, False, id="unless told otherwise"),
        pytest.param(REMOTE, "?sslmode=prefer", False, True, id="or left to the server"),
        pytest.param(REMOTE, "?sslmode=require", None, True, id="as written"),
        pytest.param("127.0.0.1", "?sslmode=require", None, True, id="on loopback, too"),
    ],
)
def test_a_remote_server_needs_tls(
    front: TlsFront, host: str, query: str, without_tls: bool | None, with_tls: bool
) -> None:
    expected = with_tls if front.certificate else without_tls
    dsn = address(front, host, query)
    if expected is None:
        front.sessions.clear()
        with pytest.raises(UnavailableError, match=r"offers no TLS.*sslmode=require") as caught:
            is_encrypted(front, dsn)
        assert host in caught.value.message
        assert "sslmode=disable" in str(caught.value.hint)
        assert front.sessions == [], "nothing was sent"
    else:
        assert is_encrypted(front, dsn) is expected


def test_each_of_several_hosts_has_its_own_rule(front: TlsFront) -> None:
    both = f"postgresql://postgres@{REMOTE}:{front.port},127.0.0.1:{front.port}/postgres"
    assert is_encrypted(front, both) is (front.certificate is not None)
    remote = f"postgresql://postgres@127.0.0.1:1,{REMOTE}:{front.port}/postgres"
    if front.certificate:
        assert is_encrypted(front, remote)
    else:
        with pytest.raises(UnavailableError, match="offers no TLS"):
            is_encrypted(front, remote)


@pytest.mark.parametrize("host, is_right", [("localhost", True), ("127.0.0.1", False)])
def test_verify_full_checks_the_name_too(
    front: TlsFront, certificate: Path, host: str, is_right: bool
) -> None:
    dsn = address(front, host, f"?sslmode=verify-full&sslrootcert={certificate}")
    if is_right and front.certificate:
        assert is_encrypted(front, dsn)
    else:
        with pytest.raises(UnavailableError, match="TLS"):
            is_encrypted(front, dsn)


@pytest.mark.parametrize(
    "dsn, environ, mode",
    [
        ("postgresql://db.example/x", {}, "require"),
        ("postgresql://u:p@10.0.0.5:5432/x", {}, "require"),
        ("postgresql://[2001:db8::5]/x", {}, "require"),
        ("postgresql:///x?host=db.example", {}, "require"),
        ("postgresql:///x?host=/run/pg,db.example", {}, "require"),
        ("postgresql:///x", {"PGHOST": "db.example"}, "require"),
        ("postgresql://127.0.0.1.example/x", {}, "require"),
        ("postgresql://localhost.example/x", {}, "require"),
        ("postgresql://2130706433/x", {}, "require"),
        ("postgresql://db.example/x?sslmode=verify-full", {}, None),
        ("postgresql://db.example/x?sslmode=disable", {}, None),
        ("postgresql://db.example/x", {"PGSSLMODE": "disable"}, None),
        ("postgresql:///x", {}, None),
        ("postgresql:///x?host=/run/postgresql", {}, None),
        ("postgresql://%2Frun%2Fpostgresql/x", {}, None),
        ("postgresql://localhost/x", {}, None),
        ("postgresql://LOCALHOST:5432/x", {}, None),
        ("postgresql://127.8.8.8/x", {}, None),
        ("postgresql://[::1]:5432/x", {}, None),
    ],
)
def test_the_mode_is_chosen_by_what_is_written(
    monkeypatch: pytest.MonkeyPatch, dsn: str, environ: dict[str, str], mode: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert required_tls(dsn) == mode
    if mode is not None:
        assert remote_tls(dsn) == mode


@pytest.mark.parametrize("dsn", ["postgresql:///x?service=prod", "postgresql://u:a/b@h/x"])
def test_an_address_that_hides_its_mode_is_refused(dsn: str) -> None:
    with pytest.raises(UsageError, match="leaves its sslmode open"):
        required_tls(dsn)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.1", "localhost.evil", "::", "10.0.0.1", "db"])  # noqa: S104
def test_another_host_is_not_this_machine(host: str) -> None:
    assert not is_local(host)


@pytest.mark.parametrize(
    "mode, grade",
    [("disable", "warn"), ("prefer", "warn"), ("require", "warn"), ("verify-full", "ok")],
)
def test_the_doctor_says_what_the_mode_lacks(mode: str, grade: str) -> None:
    finding = of_tls(mode)
    assert finding.grade.value == grade
    assert f"sslmode={mode}" in finding.found
    assert (finding.fix is None) == (mode == "verify-full")
