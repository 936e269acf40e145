"""Settings of a process: flag over environment over file, each with its unit and its limits.

Files are TOML: `cortex.toml` in the working directory, then `config.toml` in the user's
configuration directory. An unknown key is refused with its file and a suggestion.

The working directory may hold files that others wrote: a repository that was cloned, the work of an
agent. Its file sets only what widens nothing: each setting says so as `project`. A file of another
user, or one that every user may write, is refused.

Long because all settings stand in one table.
"""

import difflib
import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import platformdirs

from cortex.domain.callbacks import Signer
from cortex.domain.errors import UsageError
from cortex.domain.model_endpoints import ModelEndpoint, model_endpoints
from cortex.domain.policy import CODE_WAIT_S, NAME_MAX
from cortex.settings_file import read_settings

PREFIX: Final = "CORTEX_"
PROJECT_FILE: Final = Path("cortex.toml")
PORT_MAX: Final = 65_535
END_OF_A_POD: Final = {"pre_stop_s": 0.0, "abort_s": 0.5, "closed_s": 0.5, "kill_s": 0.0}
"""The deadlines of a shutdown in order, each with the minimum seconds to the next one.

All count from when the orchestrator began to end the pod: `kill_s` is its grace period.
"""
SHARDS_MAX: Final = 1000
VERSION_MAX: Final = 100
SECRET_CHARS_MIN: Final = 32
FLAGS: Final = {
    "tick_runners": "--runners",
    "tick_shard": "--shard",
    "tick_max_s": "--max",
    "tick_runner_max_s": "--runner-max",
    "tick_items": "--items",
}
"""Options that are not named after their setting."""
DSN_IS_FLAG: Final = "_CORTEX_DSN_IS_FLAG"
"""Variable: the value in CORTEX_DSN was given as `--dsn`, and left the process list."""
CLOSE: Final = 0.8
"""Likeness of two names from which one of them is a misspelling: SLOT and SLOTS, not PORT and HTTP.

Other variables with our prefix are not refused: Kubernetes sets some, named after services.
"""
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- nobody can open it
HARD_EXIT_MAX_S: Final = 2.0
FENCE: Final = 0.6
"""Share of the silence threshold after which a pod stops its jobs by itself."""
LEASE: Final = 0.9
"""Share after which none of its work may continue; the rest is margin."""


def _within(low: float, high: float) -> Any:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
        if not low <= value <= high:
            raise UsageError(
                f"setting {attribute.name} is {value:.12g}, outside {low:.12g} to {high:.12g}"
            )

    return check


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise TypeError
    return int(value)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).lower()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _address(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None:
        host_and_port(value)


def _version(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None and not (value.isprintable() and 0 < len(value) <= VERSION_MAX):
        raise UsageError(
            f"setting code_version is {value[:120]!r}, not a line of 1 to {VERSION_MAX} characters"
        )


def _full_paths(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    for word in [] if value is None else value.split(os.pathsep):
        if not Path(word).is_absolute():
            raise UsageError(f"setting http_folders has {word!r}, which is not a full path")


def _tenant(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None and not (value.isprintable() and 0 < len(value) <= NAME_MAX):
        raise UsageError(
            f"setting tenant is {value[:120]!r}, not a line of 1 to {NAME_MAX} characters"
        )


def _networks(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    networks_of(value)


def networks_of(text: str | None) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return addresses and networks of a list with commas. Raises `UsageError`."""
    try:
        return tuple(ip_network(word.strip()) for word in text.split(",")) if text else ()
    except ValueError as error:
        raise UsageError(
            f"setting http_proxies is {str(text)[:200]!r}: {error}",
            hint="addresses and networks, such as 127.0.0.1,10.1.0.0/16",
        ) from error


def _secrets(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    for secret in [] if value is None else value.split(","):
        if not (secret.isascii() and secret.isprintable() and len(secret) >= SECRET_CHARS_MIN):
            raise UsageError(
                f"setting callback_secret has a secret of {len(secret)} characters, not of "
                f"{SECRET_CHARS_MIN} or more in ASCII",
                hint="make one with: openssl rand -hex 32",
            )


def _url(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None:
        base_url(value, source="setting public_url")


def base_url(text: str, *, source: str) -> str:
    """Return a URL to which paths are added. Raises `UsageError`."""
    shown = "not a URL without a user" if "@" in text else f"{text[:200]!r}, not a URL"
    wrong = UsageError(f"{source} is {shown}", hint="such as https://cortex.example.org")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise wrong from error
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(" ?#@")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
        raise wrong
    return text.rstrip("/")


def _shard(_: object, __: "attrs.Attribute[Any]", value: str) -> None:
    shard_of(value)


def shard_of(text: str) -> tuple[int, int]:
    """Return the parts of INDEX/COUNT. Raises `UsageError`."""
    words = text.split("/")
    if len(words) == 2 and all(word.isascii() and word.isdecimal() for word in words):  # noqa: PLR2004
        index, count = map(int, words)
        if index < count <= SHARDS_MAX:
            return index, count
    raise UsageError(
        f"setting tick_shard is {text[:40]!r}, not INDEX/COUNT",
        hint=f"such as 0/4 to 3/4; at most {SHARDS_MAX}",
    )


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT; IPv6 in brackets. Raises `UsageError`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    is_port = port.isascii() and port.isdecimal() and int(port) <= PORT_MAX
    if not (colon and host and is_port) or (":" in host and not address.startswith("[")):
        raise UsageError(
            f"setting http is {address!r}, not HOST:PORT",
            hint="such as 127.0.0.1:8080, or [::1]:8080",
        )
    return host, int(port)


def _seconds(default: float, low: float, high: float, doc: str, *, project: bool) -> Any:
    return attrs.field(
        default=default,
        converter=_number,
        validator=_within(low, high),
        metadata={"doc": doc, "kind": "a number", "project": project},
    )


def _count(default: int, low: int, high: int, doc: str, *, project: bool) -> Any:
    return attrs.field(
        default=default,
        converter=_whole,
        validator=_within(low, high),
        metadata={"doc": doc, "kind": "a whole number", "project": project},
    )


class SettingsConflictError(UsageError):
    """Settings, each right by itself, that do not fit each other."""

    def __init__(self, message: str, *names: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.names = names


@attrs.frozen(kw_only=True)
class Settings:
    """All settings; the defaults are right for production.

    `project`: `cortex.toml` of the working directory may set it. It may not choose code, addresses,
    folders, prices or limits of what agents' programs may do, nor how long records are kept.
    """

    dsn: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        repr=False,
        metadata={
            "doc": "address of the database; none: the embedded one",
            "kind": "text",
            "project": False,
        },
    )
    data: Path | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(Path),
        metadata={
            "doc": "folder of the embedded database and of the jobs' workspaces",
            "kind": "a path",
            "project": False,
        },
    )
    prices: Path | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(Path),
        metadata={
            "doc": "TOML file: US dollars per million tokens by model, over the list prices",
            "kind": "a path",
            "project": False,
        },
    )
    http: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_address,
        metadata={
            "doc": "HOST:PORT on which a pod serves the HTTP API; none: it serves none",
            "kind": "HOST:PORT",
            "project": False,
        },
    )
    public_url: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_url,
        metadata={
            "doc": (
                "URL under which people reach the HTTP API, for links in messages; "
                "none: http:// and `http`, unless that is 0.0.0.0, [::] or port 0"
            ),
            "kind": "URL",
            "project": False,
        },
    )
    callback_secret: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_secrets,
        repr=False,
        metadata={
            "doc": (
                "secret of 32 or more characters, the same on all pods, that signs the URLs of "
                "`ctx.callback_url`; after a comma, former ones that signed URLs still in use"
            ),
            "kind": "text",
            "project": False,
        },
    )
    http_folders: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_full_paths,
        metadata={
            "doc": (
                "full paths separated by `:`, in which agents of jobs submitted over "
                "HTTP may work; none: such jobs may not name a `folder`"
            ),
            "kind": "paths",
            "project": False,
        },
    )
    tenant: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_tenant,
        metadata={
            "doc": (
                "tenant whose jobs and records commands and the terminal UI show, find, change and "
                "submit; none: all, and `default` for what is submitted"
            ),
            "kind": "text",
            "project": False,
        },
    )
    http_proxies: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_networks,
        metadata={
            "doc": (
                "addresses and networks, separated by commas, of proxies before the HTTP API: what "
                "they add to X-Forwarded-For and X-Forwarded-Proto counts; none: nobody's does"
            ),
            "kind": "networks",
            "project": False,
        },
    )
    models: tuple[ModelEndpoint, ...] = attrs.field(
        default=(),
        converter=model_endpoints,
        metadata={
            "doc": (
                "endpoints of models besides the providers' own: tables `[models.NAME]` with "
                "`kind`, `base_url`, `api_key = {env = …}` and `api`; their models are NAME:MODEL"
            ),
            "kind": "a table of endpoints",
            "project": False,
        },
    )
    app: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        metadata={
            "doc": (
                "modules, packages or files with jobs and tools, separated by commas; replaced by "
                "`--app`"
            ),
            "kind": "text",
            "project": False,
        },
    )
    unsafe_run_command: bool = attrs.field(
        default=False,
        converter=_switch,
        metadata={
            "doc": "agents' programs run unconfined, with all rights of the pod's user",
            "kind": "true or false",
            "project": False,
        },
    )
    workspace_mb: int = _count(
        1024, 1, 1_048_576, "disk space of one job's workspace, in MiB", project=False
    )
    code_version: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_version,
        metadata={
            "doc": (
                "version of the application's code, such as a commit, which people see beside a "
                "pod and its attempts; none: a digest of its sources"
            ),
            "kind": "text",
            "project": True,
        },
    )
    slots: int = _count(1000, 1, 10_000, "jobs that one pod runs at once", project=True)
    workers: int = _count(
        1,
        1,
        64,
        "processes of one pod that run jobs; they share its slots and use several cores",
        project=True,
    )
    poll_s: float = _seconds(
        1.0,
        0.01,
        60,
        ("how often a pod polls for work that no notification announced"),
        project=True,
    )
    heartbeat_s: float = _seconds(
        30.0, 0.05, 300, ("how often a pod reports that it is alive"), project=True
    )
    zombie_s: float = _seconds(
        300.0, 0.5, 86_400, "silence after which a pod's jobs are freed", project=True
    )
    sweep_s: float = _seconds(
        60.0, 0.05, 3600, ("how often pods look for jobs of silent pods"), project=True
    )
    sweep_max: int = _count(
        100, 1, 10_000, ("maximum number of jobs freed at a time, oldest first"), project=True
    )
    outbox_sent_s: float = _seconds(
        86_400.0, 0.0, 31_536_000, "how long messages are kept after they were sent", project=False
    )
    logs_s: float = _seconds(
        1_209_600.0,
        60.0,
        315_360_000,
        "how long log lines of jobs are kept, at most",
        project=False,
    )
    peer_check_s: float = _seconds(
        0.5, 0.05, 60, "how often pods check each other for death", project=True
    )
    settle_s: float = _seconds(
        5.0,
        0.0,
        300,
        (
            "time after the database's start, or after trouble of its own, in which "
            "a pod judges no other"
        ),
        project=True,
    )
    code_wait_s: float = _seconds(
        CODE_WAIT_S,
        1.0,
        31_536_000,
        "how long a job waits for code that fits it; then it fails",
        project=True,
    )
    deaths_max: int = _count(
        3,
        1,
        1000,
        ("consecutive deaths of its own process without a step after which a job fails"),
        project=True,
    )
    isolated_slots: int = _count(
        64, 0, 1000, "jobs that run in processes of their own at once", project=True
    )
    isolated_mb: int = _count(
        2048, 64, 1_048_576, "memory of such a process, in MiB", project=False
    )
    isolated_cpu_s: int = _count(
        3600,
        1,
        1_000_000,
        "CPU time that a job may use in such a process, in seconds",
        project=False,
    )
    retry_after_max_s: float = _seconds(
        300.0,
        1.0,
        3600,
        "longest pause for which a server's Retry-After may open a breaker",
        project=True,
    )
    tick_runners: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        metadata={
            "doc": "runners of `cortex tick`, separated by commas; none: all of them",
            "kind": "names",
            "project": True,
        },
    )
    tick_shard: str = attrs.field(
        default="0/1",
        converter=_text,
        validator=_shard,
        metadata={
            "doc": "INDEX/COUNT: this tick runs its part of the runners, and dispatch",
            "kind": "INDEX/COUNT",
            "project": True,
        },
    )
    tick_max_s: float = _seconds(480.0, 1.0, 86_400, "time of one tick", project=True)
    tick_runner_max_s: float = _seconds(
        60.0, 1.0, 86_400, "time of one runner in a tick", project=True
    )
    tick_items: int = _count(
        200, 1, 10_000, "items that one runner handles in a tick", project=True
    )
    tick_every_s: float = _seconds(
        60.0,
        1.0,
        86_400,
        "how often `cortex tick` is called; a runner is late after five times",
        project=True,
    )
    pre_stop_s: float = _seconds(
        5.0, 0.0, 3600, "end of a pod: its preStop hook is over, SIGTERM", project=True
    )
    abort_s: float = _seconds(
        45.0, 0.0, 7200, "end of a pod: jobs that still run are handed back", project=True
    )
    closed_s: float = _seconds(
        55.0, 0.5, 7200, "end of a pod: everything is closed, it exits", project=True
    )
    kill_s: float = _seconds(
        65.0, 1.0, 7200, "end of a pod: its grace period is over, SIGKILL", project=True
    )

    def __attrs_post_init__(self) -> None:
        if self.fence_s < 2 * self.heartbeat_s:
            raise SettingsConflictError(
                f"setting zombie_s is {self.zombie_s:g}: a pod stops its jobs after "
                f"{self.fence_s:g} s of silence, less than two heartbeats of "
                f"{self.heartbeat_s:g} s",
                "zombie_s",
                "heartbeat_s",
                hint=f"at least {2 * self.heartbeat_s / FENCE:g}, or beat more often",
            )
        if self.slots < self.workers:
            raise SettingsConflictError(
                f"setting slots is {self.slots}, less than workers of {self.workers}",
                "slots",
                "workers",
                hint="each worker needs a slot",
            )
        for earlier, later in pairwise(END_OF_A_POD):
            least_s, at_s = END_OF_A_POD[earlier], getattr(self, later)
            if round(at_s - getattr(self, earlier), 6) < least_s:  # 0.7 - 0.2 is less than 0.5
                raise SettingsConflictError(
                    f"setting {later} is {at_s:g}, less than {least_s:g} s after {earlier} of "
                    f"{getattr(self, earlier):g}",
                    later,
                    earlier,
                    hint=f"their order: {', '.join(END_OF_A_POD)}",
                )

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables of the environment that hold the keys of `models`."""
        return tuple(each.key_variable for each in self.models if each.key_variable is not None)

    @property
    def callback_secrets(self) -> tuple[str, ...]:
        """The secrets of `callback_secret`: the one that signs, then former ones."""
        return tuple(self.callback_secret.split(",")) if self.callback_secret else ()

    @property
    def signer(self) -> Signer:
        """Signs the callback URLs of jobs."""
        return Signer(self.page_url, self.callback_secrets)

    @property
    def folder_roots(self) -> tuple[Path, ...]:
        """Folders in which agents of jobs submitted over HTTP may work."""
        return tuple(map(Path, self.http_folders.split(os.pathsep))) if self.http_folders else ()

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `http_proxies`."""
        return networks_of(self.http_proxies)

    @property
    def shard(self) -> tuple[int, int]:
        """Index and count of `tick_shard`."""
        return shard_of(self.tick_shard)

    @property
    def drain_s(self) -> float:
        """Seconds from SIGTERM to the abort, for running jobs."""
        return self.abort_s - self.pre_stop_s

    @property
    def close_s(self) -> float:
        """Seconds from the abort until everything is closed."""
        return self.closed_s - self.abort_s

    @property
    def hard_exit_s(self) -> float:
        """Seconds after `closed_s` at which the process ends itself, always before SIGKILL."""
        return min(HARD_EXIT_MAX_S, (self.kill_s - self.closed_s) / 2)

    @property
    def page_url(self) -> str | None:
        """Where people reach the approval page; None: nowhere."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        if self.http is None:
            return None
        host, port = host_and_port(self.http)
        is_address = host not in EVERY_ADDRESS and port
        return f"http://{self.http}" if is_address else None

    @property
    def fence_s(self) -> float:
        """Silence after which a pod stops its own jobs: 180 s of a threshold of 300 s."""
        return FENCE * self.zombie_s

    @property
    def lease_s(self) -> float:
        """Silence after which none of a pod's work may continue: 270 s of 300 s.

        Work of at most 90 s may begin until the fence; it ends with 30 s to spare.
        """
        return LEASE * self.zombie_s

    @property
    def fresh_s(self) -> float:
        """Silence after which work without a time limit does not begin: two heartbeats."""
        return 2 * self.heartbeat_s


FIELDS: Final = attrs.fields_dict(Settings)
NAMES: Final = tuple(FIELDS)
SECRET: Final = frozenset({"dsn", "callback_secret"})
"""Settings whose values are not shown."""
_COUNTED_FROM: Final = "seconds from when its preStop hook begins, pre_stop_s before SIGTERM"
GONE: Final = {
    "drain_s": ("abort_s", f"to hand back jobs that still run, {_COUNTED_FROM}"),
    "close_s": ("closed_s", f"for the pod to have ended, {_COUNTED_FROM}"),
}
"""Settings of former versions, and their replacements."""


def files(cwd: Path | None = None) -> tuple[Path, ...]:
    """Return the files that settings are read from: the user's, then the working folder's."""
    user_file = Path(platformdirs.user_config_dir("cortex")) / "config.toml"
    return user_file, (cwd or Path()) / PROJECT_FILE


def load(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> Settings:
    """Merge the sources; a flag of None was not given.

    Raises `UsageError` that names the source, the setting and the value.
    """
    given = _given(flags, environ=environ, cwd=cwd)
    try:
        return Settings(**{name: value for name, (value, _) in given.items()})
    except SettingsConflictError as error:
        sources = dict.fromkeys(given[name][1] for name in error.names if name in given)
        raise UsageError(f"{', '.join(sources)}: {error.message}", hint=error.hint) from error


def origins(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> dict[str, str]:
    """Return the source of each setting that differs from its default.

    Raises as `load` does.
    """
    given = _given(flags, environ=environ, cwd=cwd)
    return {name: source for name, (_, source) in given.items()}


def misspelled(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables that are no setting but nearly named after one, each with that one's."""
    found = {}
    for variable in environ:
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in NAMES:
            for close in difflib.get_close_matches(name, NAMES, n=1, cutoff=CLOSE):
                found[variable] = PREFIX + close.upper()
    return found


def _given(
    flags: Mapping[str, Any], *, environ: Mapping[str, str], cwd: Path | None
) -> dict[str, tuple[Any, str]]:
    """Return the given settings, each with its winning source."""
    merged: dict[str, tuple[Any, str]] = {}

    def take(name: str, value: Any, source: str) -> None:
        merged[name] = _checked(name, value, source=source), source

    user_file, project_file = files(cwd)
    for name, value in _from_file(user_file).items():
        take(name, value, str(user_file))
    for name, value in _from_file(project_file).items():
        if not FIELDS[name].metadata["project"]:
            raise _widening(name, project_file, user_file)
        take(name, value, str(project_file))
    _refuse_gone(environ)
    for name in NAMES:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            is_flag = name == "dsn" and DSN_IS_FLAG in environ
            take(name, environ[variable], "--dsn" if is_flag else variable)
    for name, value in flags.items():
        if value is not None:
            take(name, value, FLAGS.get(name) or f"--{name.replace('_', '-')}")
    if "dsn" not in merged:
        _refuse_empty_dsn(environ)
    return merged


def _refuse_gone(environ: Mapping[str, str]) -> None:
    for name, (instead, meaning) in GONE.items():
        if environ.get(variable := PREFIX + name.upper()):
            text = f"{variable}: there is no setting {name} any more"
            raise UsageError(text, hint=f"set {PREFIX}{instead.upper()} {meaning}")


def _refuse_empty_dsn(environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if a value is missing, as of a secret: no embedded database was meant."""
    if environ.get(variable := f"{PREFIX}DSN") == "":
        raise UsageError(f"{variable} is empty", hint="set it, or unset it to use --data")


def _checked(name: str, value: Any, *, source: str) -> Any:
    """Return one setting's value in its own type. Raises `UsageError` that names its source."""
    field = FIELDS[name]
    convert: Any = field.converter
    try:
        converted = convert(value)
        if field.validator:
            field.validator(None, field, converted)
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}", hint=error.hint) from error
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        # A table or list may be nested more deeply than can be shown.
        is_hidden = name in SECRET or isinstance(value, dict | list)
        shown = "" if is_hidden else f" {value!r},"
        kind = field.metadata["kind"]
        raise UsageError(f"{source}: setting {name} is{shown} not {kind}") from error
    return converted


def _widening(name: str, project_file: Path, user_file: Path) -> UsageError:
    flag = FLAGS.get(name) or f"--{name.replace('_', '-')}"
    return UsageError(
        f"{project_file}: setting {name} does not count in a file of the working directory",
        hint=f"remove it there; give {flag} where a command has it, set {PREFIX}{name.upper()}, or "
        f"write it to {user_file}",
    )


def _from_file(path: Path) -> dict[str, Any]:
    values = read_settings(path)
    for key in values:
        if key in GONE:
            text = f"{path}: there is no setting {key} any more"
            raise UsageError(text, hint=f"set {' '.join(GONE[key])}")
        if key not in NAMES:
            close = difflib.get_close_matches(key, NAMES, n=1)
            raise UsageError(
                f"{path}: unknown setting {key!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}",
            )
    return values
