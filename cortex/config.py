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


def _within(low: float, high: float) -> Any:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
        if not low <= value <= high:
            raise UsageError(f"setting {attribute.name} is {value:g}, outside {low:g} to {high:g}")

    return check


def _seconds(default: float, low: float, high: float, doc: str) -> Any:
    return attrs.field(
        default=default, converter=float, validator=_within(low, high), metadata={"doc": doc}
    )


def _count(default: int, low: int, high: int, doc: str) -> Any:
    return attrs.field(
        default=default, converter=int, validator=_within(low, high), metadata={"doc": doc}
    )


@attrs.frozen(kw_only=True)
class Settings:
    """Everything that can be set; the defaults are right for production."""

    dsn: str | None = attrs.field(
        default=None,
        repr=False,
        metadata={"doc": "address of the database; none: the embedded one"},
    )
    data: Path | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(Path),
        metadata={"doc": "folder of the embedded database and of the jobs' workspaces"},
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


NAMES: Final = tuple(field.name for field in attrs.fields(Settings))


def load(
    flags: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> Settings:
    """Merge the sources; `flags` whose value is None were not given.

    Raises `UsageError` that names the source, the setting and the value.
    """
    merged: dict[str, Any] = {}
    user_file = Path(platformdirs.user_config_dir("cortex")) / "config.toml"
    for path in (user_file, (cwd or Path()) / PROJECT_FILE):
        merged |= _from_file(path)
    merged |= {
        name: environ[PREFIX + name.upper()] for name in NAMES if environ.get(PREFIX + name.upper())
    }
    merged |= {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**merged)
    except (ValueError, TypeError) as error:
        raise UsageError(f"a setting has the wrong type: {error}") from error


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error
    for key in values:
        if key not in NAMES:
            close = difflib.get_close_matches(key, NAMES, n=1)
            raise UsageError(
                f"{path}: unknown setting {key!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}",
            )
    return values
