"""Connection strings: displayed without their password, and kept out of the process list."""

import ipaddress
import os
import re
import sys
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from cortex.domain.errors import UsageError
from cortex.domain.interpreter import same_command

_SECRET_PARAMETERS = frozenset({"password", "passfile", "sslpassword"})
_SECRET_WORD = re.compile(
    r"(pass(?:word|file)\s*=\s*)(?:'(?:[^'\\]|\\.)*(?:'|$)|\S+)", re.IGNORECASE
)
"""As in `host=h password='a b'`, the other form of address."""

PORT_MAX = 65_535
_HOST = re.compile(r"(/.*|\[[^\]]*\]|[^:/]*)(?::(.*))?")
"""One of several hosts, with or without a port: a socket folder, an IPv6 address, a name."""

_SETTING = re.compile(r"(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))")


def check(dsn: str, *, source: str) -> str:
    """Return the string if it looks like an address; else raise `UsageError` naming its source."""
    parts = _split(dsn)
    if parts is None or parts.scheme not in {"postgres", "postgresql"}:
        raise UsageError(
            f"{source} is not a Postgres address: {redact(dsn)!r}",
            hint="it looks like postgresql://user:password@host:5432/database; "
            "in a password @ is written %40, / %2F, : %3A, ? %3F, # %23",
        )
    try:
        _ = hosts(dsn) or parts.port
    except ValueError as error:
        raise UsageError(f"{source} has a bad host or port: {redact(dsn)!r}") from error
    return dsn


def hosts(dsn: str) -> list[tuple[str, int | None]]:
    """Return the hosts of an address that names several, with their ports; else an empty list.

    Raises `ValueError` for an invalid host, and if the number of ports differs from that of hosts.
    """
    parts = _split(dsn)
    if parts is None:
        return []
    named = dict(parse_qsl(parts.query))
    places = (parts.netloc.rpartition("@")[2] or named.get("host", "")).split(",")
    if len(places) == 1:
        return []
    matches = [_HOST.fullmatch(unquote(place)) for place in places]
    ports = named["port"].split(",") if "port" in named else [m and m[2] for m in matches]
    if len(ports) == 1:
        ports *= len(matches)
    return [(_host(m), _port(port)) for m, port in zip(matches, ports, strict=True)]


def names_server(dsn: str) -> bool:
    """Return whether the address says which of several servers is wanted."""
    parts = _split(dsn)
    return parts is not None and "target_session_attrs" in dict(parse_qsl(parts.query))


def required_tls(dsn: str, *, host: str | None = None) -> Literal["require"] | None:
    """Return the `sslmode` for an address that names none: `require`, or None for this machine.

    `host`: one of several. Raises `UsageError` for a service, whose file may name another mode.
    """
    if _named_tls(dsn):
        return None
    named = _named(dsn)
    if named is None or "service" in named or os.environ.get("PGSERVICE"):
        raise UsageError(
            f"{redact(dsn)} leaves its sslmode open",
            hint="name it in the address, such as ?sslmode=verify-full",
        )
    return None if all(map(is_local, [host] if host else _hosts_of(dsn))) else "require"


def remote_tls(dsn: str) -> str | None:
    """Return the `sslmode` of an address of another machine; None for this one."""
    if all(map(is_local, _hosts_of(dsn))):
        return None
    return _named_tls(dsn) or "require"


def _named_tls(dsn: str) -> str | None:
    return (_named(dsn) or {}).get("sslmode") or os.environ.get("PGSSLMODE") or None


def _named(dsn: str) -> dict[str, str] | None:
    parts = _split(dsn)
    return None if parts is None else dict(parse_qsl(parts.query))


def _hosts_of(dsn: str) -> list[str]:
    """Return the hosts as the driver finds them; none: a socket or loopback of its choice."""
    if several := hosts(dsn):
        return [host for host, _ in several]
    parts = _split(dsn)
    netloc = "" if parts is None else unquote(parts.netloc.rpartition("@")[2])
    match = _HOST.fullmatch(netloc)
    written = (match and match[1]) or (_named(dsn) or {}).get("host") or os.environ.get("PGHOST")
    return written.split(",") if written else []


def is_local(host: str) -> bool:
    """Return whether what is sent to it stays on this machine: a socket folder, or loopback.

    A name is never resolved: the next resolver may know it differently.
    """
    name = host.strip("[]").lower().rstrip(".")
    if not name or name.startswith(("/", "@")) or name in {"localhost", "ip6-localhost"}:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def redact(dsn: str) -> str:
    """Return the address for people, without secrets; `***` if these cannot be separated."""
    parts = _split(dsn)
    if parts is None:
        return "***"
    if not parts.scheme and not parts.netloc:
        return _SECRET_WORD.sub(r"\1***", dsn)
    user, at, address = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}{':***' if colon and _ else ''}{at if name else ''}{address}"
    query = urlencode(
        [(k, "***" if k.lower() in _SECRET_PARAMETERS else v) for k, v in parse_qsl(parts.query)],
        safe="/*",
    )
    return unquote(urlunsplit((parts.scheme, netloc, parts.path, query, "")))


def has_password(dsn: str) -> bool:
    """Return whether the string holds a secret that must not appear in the process list."""
    parts = _split(dsn)
    if parts is None or _SECRET_WORD.search(dsn):
        return True
    secrets = {key.lower() for key, _ in parse_qsl(parts.query)} & _SECRET_PARAMETERS
    return bool(parts.password or secrets)


def password_of(dsn: str) -> str | None:
    """Return the password of an address; None if it has none, or one that anyone would guess.

    Such a password equals the name of the user or of the database.
    """
    parts = _split(dsn)
    if parts is None:
        return None
    named = dict(parse_qsl(parts.query))
    guesses = {unquote(parts.username or ""), unquote(parts.path.removeprefix("/"))}
    password = unquote(parts.password or "") or named.get("password", "")
    if not parts.scheme:
        named = {name: first or second for name, first, second in _SETTING.findall(dsn)}
        guesses = {named.get("user", ""), named.get("dbname", "")}
        password = named.get("password", "")
    return password if password and password not in guesses else None


def _host(matches: "re.Match[str] | None") -> str:
    if matches is None or not matches[1]:
        raise ValueError("no host")
    return matches[1].strip("[]")


def _port(text: str | None) -> int | None:
    if not text:
        return None
    port = int(text)
    if not 0 < port <= PORT_MAX:
        raise ValueError(port)
    return port


def _split(dsn: str) -> SplitResult | None:
    """Split an address; None if a password may be where none is expected.

    That happens if a `/`, `?` or `#` in the password was not quoted: then an `@` comes after it.
    """
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return None
    return None if "@" in parts.path + parts.query + parts.fragment else parts


def hide_from_process_list(arguments: list[str], *, mark: str) -> None:
    """Restart this process with a `--dsn` that holds a password moved to the environment.

    `mark` is a variable that is set with it.

    Everyone on the machine may read a process's arguments; only its own user its environment.
    Returns only if there is nothing to hide.
    """
    kept: list[str] = []
    dsn: str | None = None
    words = iter(arguments)
    for word in words:
        if word == "--dsn":
            value = next(words, None)
            if value is None:
                kept.append(word)
            elif has_password(value):
                dsn = value
            else:
                kept += [word, value]
        elif word.startswith("--dsn=") and has_password(word.removeprefix("--dsn=")):
            dsn = word.removeprefix("--dsn=")
        else:
            kept.append(word)
    if dsn is not None:
        os.environ |= {"CORTEX_DSN": dsn, mark: "1"}
        os.execv(sys.executable, same_command(kept))  # noqa: S606
