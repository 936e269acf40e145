"""The figures that the newest release has recorded, one file for each release."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import attrs

FOLDER: Final = Path("docs", "internals", "figures")
PREFIX: Final = re.compile("^(cortex|python -m) bench ")


@attrs.frozen
class Recorded:
    """The figures of a release by measurement, with its options, and by their names."""

    release: str
    machine: str
    figures: Mapping[tuple[str, str], float]

    @classmethod
    def newest(cls, checkout: Path) -> Self | None:
        """Read the file of the highest version; `unreleased` is below all; None without any."""
        files = sorted((checkout / FOLDER).glob("*.toml"), key=_version)
        if not files:
            return None
        document = tomllib.loads(files[-1].read_text("utf-8"))
        return cls(
            files[-1].stem,
            document["machine"],
            {
                (PREFIX.sub("", each["command"]), name): value
                for each in document["measured"]
                for name, value in each["figures"].items()
            },
        )


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.stem))
