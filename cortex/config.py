"""Settings of a process: flag over environment over file, each with its unit and its limits.

Files are TOML: `cortex.toml` in the working directory, then `config.toml` in the user's
configuration directory. A key that nobody knows is refused with its file and a suggestion.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import platformdirs

from cortex.domain.errors import UsageError

PREFIX: Final = "CORTEX_"
PROJECT_FILE: Final = Path("cortex.toml")
PORT_MAX: Final = 65_535


def _within(low: float, high: float) -> Any:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
        if not low <= value <= high:
            raise UsageError(f"setting {attribute.name} is {value:g}, outside {low:g} to {high:g}")

    return check


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise TypeError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _address(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None:
        host_and_port(value)


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


def _seconds(default: float, low: float, high: float, doc: str) -> Any:
    return attrs.field(
        default=default,
        converter=_number,
        validator=_within(low, high),
        metadata={"doc": doc, "kind": "a number"},
    )


def _count(default: int, low: int, high: int, doc: str) -> Any:
    return attrs.field(
        default=default,
        converter=_whole,
        validator=_within(low, high),
        metadata={"doc": doc, "kind": "a whole number"},
    )


@attrs.frozen(kw_only=True)
class Settings:
    """Everything that can be set; the defaults are right for production."""

    dsn: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        repr=False,
        metadata={"doc": "address of the database; none: the embedded one", "kind": "text"},
    )
    data: Path | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(Path),
        metadata={
            "doc": "folder of the embedded database and of the jobs' workspaces",
            "kind": "a path",
        },
    )
    prices: Path | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(Path),
        metadata={
            "doc": "TOML file: US dollars per million tokens by model, over the list prices",
            "kind": "a path",
        },
    )
    http: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_text),
        validator=_address,
        metadata={
            "doc": "HOST:PORT on which a pod serves the HTTP API; none: it serves none",
            "kind": "HOST:PORT",
        },
    )
    slots: int = _count(1000, 1, 10_000, "jobs that one pod runs at once")
    poll_s: float = _seconds(1.0, 0.01, 60, "how often a pod looks for work that nothing announced")
    heartbeat_s: float = _seconds(30.0, 0.05, 300, "how often a pod says that it is alive")
    zombie_s: float = _seconds(300.0, 0.5, 86_400, "silence after which a pod's jobs are freed")
    sweep_s: float = _seconds(60.0, 0.05, 3600, "how often silent pods' jobs are looked for")
    look_s: float = _seconds(0.5, 0.05, 60, "how often pods look for each other's deaths")
    settle_s: float = _seconds(
        5.0, 0.0, 300, "time after the database's start in which nobody is dead"
    )
    deaths_max: int = _count(3, 1, 1000, "pod deaths in a row, without a step, that fail a job")
    drain_s: float = _seconds(40.0, 0.0, 3600, "time that running jobs get after SIGTERM")
    close_s: float = _seconds(10.0, 0.5, 300, "time to hand back what is left, flush and close")

    def __attrs_post_init__(self) -> None:
        if self.zombie_s < 2 * self.heartbeat_s:
            raise UsageError(
                f"setting zombie_s is {self.zombie_s:g}, less than two heartbeats of "
                f"{self.heartbeat_s:g} s"
            )

    @property
    def fence_s(self) -> float:
        """Silence after which a pod stops its own jobs: 180 s of a threshold of 300 s."""
        return 0.6 * self.zombie_s


FIELDS: Final = attrs.fields_dict(Settings)
NAMES: Final = tuple(FIELDS)


def load(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> Settings:
    """Merge the sources; `flags` whose value is None were not given.

    Raises `UsageError` that names the source, the setting and the value.
    """
    merged: dict[str, Any] = {}
    user_file = Path(platformdirs.user_config_dir("cortex")) / "config.toml"
    for path in (user_file, (cwd or Path()) / PROJECT_FILE):
        for name, value in _from_file(path).items():
            merged[name] = _checked(name, value, source=str(path))
    for name in NAMES:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            merged[name] = _checked(name, environ[variable], source=variable)
    for name, value in flags.items():
        if value is not None:
            merged[name] = _checked(name, value, source=f"--{name.replace('_', '-')}")
    return Settings(**merged)


def _checked(name: str, value: Any, *, source: str) -> Any:
    """Return one setting's value with its own type, or raise `UsageError` naming its source."""
    field = FIELDS[name]
    convert: Any = field.converter
    try:
        converted = convert(value)
        if field.validator:
            field.validator(None, field, converted)
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}", hint=error.hint) from error
    except (ValueError, TypeError, OverflowError) as error:
        shown = "" if name == "dsn" else f" {value!r},"
        kind = field.metadata["kind"]
        raise UsageError(f"{source}: setting {name} is{shown} not {kind}") from error
    return converted


def _from_file(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    try:
        values = tomllib.loads(raw.decode())
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    for key in values:
        if key not in NAMES:
            close = difflib.get_close_matches(key, NAMES, n=1)
            raise UsageError(
                f"{path}: unknown setting {key!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}",
            )
    return values
