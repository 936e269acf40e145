"""The servers that an agent may use, as a person writes them in YAML.

mcp:
  github:
    url: https://api.githubcopilot.com/mcp/
    headers: {Authorization: "Bearer {secret:GITHUB_TOKEN}"}
    tools: [create_issue, list_issues]
  files:
    command: [mcp-server-filesystem, .]
    folder: read
    read_only: [read_*, list_*]
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import attrs

from cortex.domain.canonical import canonical, digest
from cortex.domain.errors import InvalidValueError
from cortex.domain.key_shapes import is_secret_name, masked
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.structuring import UnfitError, show
from cortex.http_client.client import RESERVED_HEADERS, origin_of, parse_url
from cortex.http_client.proxies import Origin

SERVERS_MAX: Final = 32
WORDS_MAX: Final = 100
PATTERNS_MAX: Final = 200
SERVER: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]|_(?!_)){0,31}(?<!_)")
"""Without `__`, which divides it from the tool's name in the name that the model gets."""
TOOL: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,128}")
SECRET: Final = re.compile(r"\{secret:([^{}]*)\}")
WORKSPACE: Final = "{workspace}"
"""In the command and the environment: the folder that the server may write."""


@attrs.frozen(kw_only=True)
class McpServer:
    """One server: a program that this pod starts, or an address."""

    command: list[str] | None = None
    """The program and its arguments; it speaks the protocol on its standard streams."""
    env: dict[str, str] = attrs.field(factory=dict)
    """The program's own variables, with `{secret:NAME}` for secrets of the agent."""
    network: bool = False
    """The program may use the pod's network, and reach whatever the pod reaches."""
    folder: Literal["none", "read", "write"] = "none"
    """Its access to the job's folder, where it then starts, once for each job."""
    reads: list[str] = attrs.field(factory=list)
    """Further folders that the program sees, such as the one where it is installed."""
    url: str | None = None
    headers: dict[str, str] = attrs.field(factory=dict)
    """Sent with each request, with `{secret:NAME}` for secrets of the agent."""
    tools: list[str] | None = None
    """Names or globs of the tools that the agent gets; None: all."""
    read_only: list[str] = attrs.field(factory=list)
    """Names or globs of tools that change nothing outside."""
    trusted: bool = False
    """Believe the server's own hints about which of its tools only read or may be repeated."""
    timeout: float = TIMEOUTS["tool_call"].default_s
    """Seconds that one call may take."""

    def __attrs_post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise UnfitError("must have either command or url")
        _check_words("tools", self.tools or [])
        _check_words("read_only", self.read_only)
        if refusal := TIMEOUTS["tool_call"].refusal(self.timeout):
            raise UnfitError(refusal, path=("timeout",))
        _refuse_keys("env", self.env)
        _refuse_keys("headers", self.headers)
        _refuse_keys("command", dict(enumerate(map(str, self.command or ()))))
        if self.url is None:
            self._check_program()
        else:
            self._check_address(self.url)

    def _check_program(self) -> None:
        words = self.command or []
        if not 0 < len(words) <= WORDS_MAX or not words[0]:
            raise UnfitError(f"must have from 1 to {WORDS_MAX} words", path=("command",))
        for index, word in enumerate(words):
            if SECRET.search(word):  # other processes of the machine see arguments
                reason = "holds a secret, which belongs into env"
                raise UnfitError(reason, path=("command", index))
        for name in self.env:
            if not VARIABLE.fullmatch(name):
                raise UnfitError(f"has {show(name)}, which is no variable", path=("env",))
        for index, path in enumerate(self.reads):
            if not path.startswith("/") or "/../" in f"{path}/":
                reason = f"must be the full path of a folder, got {show(path)}"
                raise UnfitError(reason, path=("reads", index))
        if self.headers:
            raise UnfitError("is for a url; a program gets its secrets by env", path=("headers",))

    def _check_address(self, url: str) -> None:
        try:
            parse_url(url)
        except InvalidValueError as error:
            raise UnfitError(f"is wrong: {error.message}", path=("url",)) from None
        for name in self.headers:
            if not HEADER.fullmatch(name) or name.lower() in RESERVED_HEADERS:
                raise UnfitError(f"has {show(name)}, which cannot be set", path=("headers",))
        for name in ("env", "network", "folder", "reads"):
            if getattr(self, name) != _default(name):
                raise UnfitError("is for a command, not for a url", path=(name,))

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets that it gets."""
        texts = [*self.env.values(), *self.headers.values()]
        return frozenset(name for text in texts for name in SECRET.findall(text))

    @property
    def origin(self) -> Origin | None:
        """Where requests go; None for a program."""
        return None if self.url is None else origin_of(parse_url(self.url))

    def has(self, tool: str) -> bool:
        """Return whether the agent gets a tool of this name."""
        return self.tools is None or any(fnmatchcase(tool, each) for each in self.tools)

    @property
    def named(self) -> tuple[str, ...]:
        """The tools that it names one by one."""
        return tuple(each for each in self.tools or () if TOOL.fullmatch(each))

    def only_reads(self, tool: str) -> bool:
        """Return whether the specification says that a tool changes nothing."""
        return any(fnmatchcase(tool, each) for each in self.read_only)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: what differs from the defaults."""
        return attrs.asdict(self, filter=lambda each, value: value != _default(each.name))

    @property
    def identity(self) -> str:
        """A digest of what decides which server this is, in hexadecimal digits.

        Another time-out or another choice of its tools leaves it the same server.
        """
        parts = ("command", "env", "network", "folder", "reads", "url", "headers")
        return digest(canonical({name: getattr(self, name) for name in parts})).hex()


def check_servers(
    _: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, McpServer]
) -> None:
    """Refuse invalid names, and too many of them; a validator of attrs."""
    if len(value) > SERVERS_MAX:
        raise UnfitError(f"has {len(value)} servers, at most {SERVERS_MAX}", path=(attribute.name,))
    for name in value:
        if not SERVER.fullmatch(name):
            reason = (
                f"has {show(name)}: a server's name has up to 32 letters, digits, - and single _"
            )
            raise UnfitError(reason, path=(attribute.name,))


def _refuse_keys(field: str, texts: Mapping[Any, str]) -> None:
    """Refuse what should be a secret, without showing it: specifications are stored and shown."""
    for name, text in texts.items():
        is_secret = isinstance(name, str) and _is_secret(name) and not SECRET.search(text)
        if is_secret or masked(text) != text:
            reason = "looks like a key: declare it under `secrets`, and write {secret:NAME} here"
            raise UnfitError(reason, path=(field, name))


def _is_secret(name: str) -> bool:
    return name.lower() in _CREDENTIALS or is_secret_name(name)


_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


def _check_words(name: str, patterns: list[str]) -> None:
    if len(patterns) > PATTERNS_MAX:
        raise UnfitError(f"has {len(patterns)} names, at most {PATTERNS_MAX}", path=(name,))
    if not all(patterns):
        raise UnfitError("has an empty name", path=(name,))


def _default(name: str) -> Any:
    return _DEFAULTS[name]


_DEFAULTS: Final[Mapping[str, Any]] = {
    **{each.name: each.default for each in attrs.fields(McpServer)},
    **{name: {} for name in ("env", "headers")},
    **{name: [] for name in ("reads", "read_only")},
}
