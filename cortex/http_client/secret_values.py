"""Secrets by reference: variables of a pod and files on its machine, read when they are sent.

A value is never part of a record or a log, and is not kept either: the next request uses a changed
one. A job may only use what the operator permits, and only for the hosts that it is permitted for:

    CORTEX_HTTP_SECRETS="env:CRM_TOKEN@api.crm.example,file:/run/secrets/hook@hooks.example:8443"
"""

import os
import re
import socket
import stat
from collections.abc import Mapping
from typing import Final, Self

import attrs

from cortex.domain import redaction
from cortex.domain.errors import ForbiddenError, InvalidValueError, RejectedError, UsageError
from cortex.http_client import secret_files
from cortex.http_client.proxies import Origin

SETTING: Final = "CORTEX_HTTP_SECRETS"
MEANING: Final = (
    "secrets that jobs may put into headers, each for one host: `env:NAME@HOST` or "
    "`file:/PATH@HOST:PORT`; separated by commas"
)
VALUE_BYTES_MAX: Final = 65_536
"""Enough for a chain of certificates; a larger file is the wrong one."""
FILE_CHARS_MAX: Final = 4_096

VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
FILE: Final = re.compile(r"/[^\0-\x1f\x7f-\x9f]+")
HOST: Final = re.compile(
    r"(?P<insecure>http://)?(?P<host>[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
    r"(:(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE,
)
"""`HOST` or `HOST:PORT`, reached by https only; `http://HOST:PORT` where there is no https."""
_REFERENCE: Final = re.compile(
    rf"(?:env:(?P<env>{VARIABLE.pattern})|file:(?P<file>{FILE.pattern}))", re.ASCII
)
_IN_HEADER: Final = re.compile(r"(?P<before>(?:[A-Za-z0-9_-]+ )?)(?P<reference>(?:env|file):.+)")


@attrs.frozen(kw_only=True)
class SecretPlace:
    """Where a value is stored: a variable of the pod, or a file on its machine."""

    env: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `env:NAME` or `file:/PATH`.

        Raises `InvalidValueError`, without the text: it may be the value itself.
        """
        match = _REFERENCE.fullmatch(text)
        if match is None or len(text) > FILE_CHARS_MAX:
            raise InvalidValueError(
                "a secret must be given as env:NAME, in capitals, or as file:/full/path"
            )
        return cls(env=match["env"], file=match["file"])

    def __str__(self) -> str:
        """Return where the value should be, for error messages."""
        return f"environment variable {self.env}" if self.file is None else f"file {self.file}"

    def read(self, name: str) -> str:
        """Return the value. From here on it is redacted, as `name`, in records and logs.

        Blocks for one read of a small file. Raises `RejectedError` that names place and pod.
        """
        text = self.read_openly(name)
        try:
            redaction.register(name, text)
        except InvalidValueError as error:
            raise RejectedError(f"{self._named(name)}: {error.message}", hint=error.hint) from None
        return text

    def read_openly(self, name: str) -> str:
        """Return a value that is kept like a secret but is none, such as the name of a user."""
        place = self._named(name)
        return _of_variable(self.env, place) if self.env else _of_file(self.file or "", place)

    def _named(self, name: str) -> str:
        return f"secret {name} on pod {socket.gethostname()}:{os.getpid()}: {self}"


def secret_files_known() -> Mapping[str, frozenset[tuple[int, int]]]:
    """Return device and inode of each file that holds a declared secret, by its path. Blocks.

    Raises `UsageError` if the operator's permissions cannot be read.
    """
    return secret_files.known(PermittedSecrets.of_environment().files)


def header_value(name: str, value: str) -> str:
    """Return a secret that fits into a header; an error of the HTTP layer would quote it."""
    if not (value.isascii() and value.isprintable()):
        raise RejectedError(
            f"secret {name} contains a line break or other characters that are invalid in a header"
        )
    return value


def origin_named(text: str) -> Origin:
    """Return where a host as in `HOST` stands. Raises `InvalidValueError`."""
    host = HOST.fullmatch(text)
    if host is None:
        raise InvalidValueError("invalid host of a secret")
    scheme, standard = ("http", 80) if host["insecure"] else ("https", 443)
    return scheme, host["host"].strip("[]").lower(), int(host["port"] or standard)


@attrs.frozen
class PermittedSecrets:
    """The references that jobs may use in headers, each with its hosts; the operator's choice."""

    hosts: Mapping[str, frozenset[Origin]] = attrs.field(factory=dict)

    @classmethod
    def of_environment(cls) -> Self:
        """Return this machine's permissions; raises `UsageError`."""
        return cls.parse(os.environ.get(SETTING, ""))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a comma-separated list of `REFERENCE@HOST`; raises `UsageError`."""
        hosts: dict[str, set[Origin]] = {}
        for entry in filter(None, map(str.strip, text.split(","))):
            reference, _, host = entry.rpartition("@")
            try:
                SecretPlace.parse(reference)
                hosts.setdefault(reference, set()).add(origin_named(host))
            except InvalidValueError:
                raise UsageError(
                    f"{SETTING}: {entry!r} is no reference with its host",
                    hint="such as env:CRM_TOKEN@api.crm.example",
                ) from None
        return cls({reference: frozenset(each) for reference, each in hosts.items()})

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the references to files."""
        return tuple(each.removeprefix("file:") for each in self.hosts if each.startswith("file:"))

    def is_in(self, value: str) -> bool:
        """Return whether a header's value is a reference, behind a word such as Bearer or not."""
        return _IN_HEADER.fullmatch(value) is not None

    def in_header(self, value: str, origin: Origin) -> str:
        """Replace a reference by its value, to be sent to `origin`."""
        match = _IN_HEADER.fullmatch(value)
        if match is None:
            return value
        reference = match["reference"]
        return match["before"] + header_value(reference, self.value(reference, origin))

    def value(self, reference: str, origin: Origin) -> str:
        """Look up a secret that is used for `origin`. Raises `ForbiddenError`, `RejectedError`."""
        place = SecretPlace.parse(reference)
        if origin not in self.hosts.get(reference, frozenset()):
            scheme, host, port = origin
            shown = f"http://{host}:{port}" if scheme == "http" else f"{host}:{port}"
            raise ForbiddenError(
                f"{reference} may not be sent to {scheme}://{host}:{port}",
                hint=f"the operator can permit {reference}@{shown} in {SETTING}",
            )
        return place.read(reference)


def _of_variable(variable: str, place: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise RejectedError(f"{place} is not set", hint="set it where the pod is started")
    return _checked(value.encode(errors="surrogateescape"), place)


def _of_file(file_name: str, place: str) -> str:
    try:
        # Without O_NONBLOCK a named pipe would block the open until it has a writer.
        file = os.open(file_name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            secret_files.note(file_name, status)
            is_file = stat.S_ISREG(status.st_mode)
            content = os.read(file, VALUE_BYTES_MAX + 1) if is_file else b""
        finally:
            os.close(file)
    except OSError as error:
        raise RejectedError(f"{place} cannot be read: {error.strerror}") from error
    if not is_file:
        raise RejectedError(f"{place} is not a file")
    # Editors and `echo` end a file with a line break, which is no part of a password.
    return _checked(content.removesuffix(b"\n").removesuffix(b"\r"), place)


def _checked(content: bytes, place: str) -> str:
    if len(content) > VALUE_BYTES_MAX:
        raise RejectedError(f"{place} is larger than {VALUE_BYTES_MAX:,} bytes")
    text = content.decode(errors="replace")
    if "\ufffd" in text or "\0" in text:
        raise RejectedError(f"{place} does not hold text")
    return text
