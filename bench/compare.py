"""Compares this checkout with another commit of it: the same measurements, in turns.

Both run in this environment. The other commit's files and, unless a database is named, a data
directory for each side are in a scratch folder, which goes when the comparison ends in any way.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, Self

import attrs

import cortex
from bench.recorded import Recorded
from cortex.bench.figures import middle, shown
from cortex.config import PREFIX
from cortex.domain.errors import UnavailableError, UsageError
from cortex.postgres.embedded.server import acquire
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, on_demand

STOP_BOUND_S: Final = 30.0
RATIOS: Final = ("ratio", "ratio_q1", "ratio_q3", "ratio_min", "ratio_max")
NO_FIGURES: Final = frozenset({"schema_version", "runs", "repeats"})
Figures = Mapping[str, float]
Row = Mapping[str, Any]
Progress = Callable[[str], None]


@attrs.frozen
class Bench:
    """One measurement and its options."""

    name: str
    arguments: tuple[str, ...]
    conditions: frozenset[str]
    """Keys of its document that repeat options."""

    @property
    def label(self) -> str:
        return " ".join((self.name, *self.arguments))


@attrs.frozen
class Checkout:
    """The git checkout from which this program runs."""

    root: Path

    @classmethod
    def of_this_program(cls) -> Self:
        """Raise `UsageError` for an installed program."""
        root = Path(cortex.__file__).resolve().parent.parent
        checkout = cls(root)
        if Path(checkout._git("rev-parse", "--show-toplevel")).resolve() != root:
            raise UsageError(
                f"cortex runs from {root}, which is no git checkout",
                hint="run it from a checkout: `uv run python -m bench compare …`",
            )
        return checkout

    def commit(self, ref: str) -> str:
        """Return the full id of a commit. Raises `UsageError` for an unknown one."""
        try:
            return self._git("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
        except UsageError:
            raise UsageError(f"no commit {ref!r} in {self.root}") from None

    @property
    def has_changes(self) -> bool:
        """Whether files differ from the last commit."""
        return bool(self._git("status", "--porcelain"))

    def unpack(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into a new folder; git keeps no trace of it."""
        archive = folder.with_suffix(".zip")
        self._git("archive", "--format=zip", "-0", f"--output={archive}", commit)
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
        archive.unlink()

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 -- a fixed program, arguments not interpreted
                ["git", "-C", str(self.root), *arguments],  # noqa: S607
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise UsageError("git is not installed; a comparison needs it") from None
        if done.returncode != 0:
            reason = done.stderr.strip().partition("\n")[0]
            raise UsageError(f"git does not read {self.root}: {reason.removeprefix('fatal: ')}")
        return done.stdout.strip()


@attrs.frozen
class Side:
    """One of the two programs, and its database."""

    label: str
    tree: Path
    folder: Path
    """Its working directory and, unless a database is named, the place of its data."""
    dsn: str | None

    def has(self, name: str) -> bool:
        """Whether it has a measurement of this name."""
        return self._finish([name, "--help"]).returncode == 0

    def run(self, bench: Bench) -> Figures:
        """Measure once. Raises what the measurement reports."""
        done = self._finish([bench.name, *bench.arguments, "--repeat", "1", "--json"])
        if done.returncode != 0:
            message = f"`bench {bench.label}` of {self.label}: {_reported(done.stderr)}"
            raise UsageError(message) if done.returncode == 2 else UnavailableError(message)  # noqa: PLR2004
        document: dict[str, Any] = json.loads(done.stdout)
        return {
            key: value
            for key, value in document.items()
            if key not in bench.conditions | NO_FIGURES and isinstance(value, int | float)
        }

    def stop_server(self) -> None:
        """Stop the embedded server that a killed measurement has left behind."""
        if (self.folder / "pgdata" / "postmaster.pid").exists():
            acquire(self.folder).release()

    @property
    def _program(self) -> tuple[str, ...]:
        """The module that measures: older commits have all measurements in `cortex bench`."""
        return ("bench",) if (self.tree / "bench").is_dir() else ("cortex", "bench")

    def _finish(self, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        place = {"DATA": str(self.folder)} if self.dsn is None else {"DSN": self.dsn}
        paths = (str(self.tree), str(self.tree / "tui"))
        child = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-m", *self._program, *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                **{PREFIX + name: value for name, value in place.items()},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches it through `_interrupt` only
        )
        try:
            out, err = child.communicate()
        except BaseException:
            _interrupt(child)
            raise
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)


@attrs.frozen
class Comparison:
    """The two sides, and what to say about them."""

    before: Side
    after: Side
    ref: str
    commit: str
    recorded: Recorded | None
    """Figures of the newest release, from this checkout."""

    def figures(self, benches: Sequence[Bench], *, repeat: int, show: Progress) -> list[Row]:
        """Run each measurement `repeat` times on both sides, in turns; return a row per figure.

        Raises `UsageError` if the other commit has not all of them.
        """
        for bench in benches:
            if not self.before.has(bench.name):
                raise UsageError(f"{self.before.label} has no measurement {bench.name}")
        rows: list[Row] = []
        recorded = self.recorded.figures if self.recorded else {}
        for bench in benches:
            pairs = []
            for number in range(1, repeat + 1):
                show(f"{bench.label}: {number} of {repeat}")
                pairs.append((self.before.run(bench), self.after.run(bench)))
            rows += (
                {
                    "bench": bench.label,
                    "ref": self.ref,
                    "commit": self.commit,
                    **row,
                    "recorded": recorded.get((bench.label, row["figure"])),
                }
                for row in rows_of(pairs)
            )
        return rows


@contextmanager
def comparison(ref: str, *, dsn: str | None) -> Iterator[Comparison]:
    """Prepare both sides; remove everything afterwards. Raises `UsageError`."""
    checkout = Checkout.of_this_program()
    commit = checkout.commit(ref)
    with tempfile.TemporaryDirectory(prefix="cortex-compare-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)  # root's server is another user
        tree = scratch / "tree"
        checkout.unpack(commit, tree)
        _refuse_other_dependencies(checkout.root, tree, ref)
        sides: list[Side] = []
        for label, root in ((ref, tree), ("this checkout", checkout.root)):
            folder = scratch / f"data{len(sides)}"
            folder.mkdir(mode=0o755)
            sides.append(Side(label, root, folder, dsn))
        before, after = sides
        changes = "+" if checkout.has_changes else ""
        try:
            head = checkout.commit("HEAD") + changes
            yield Comparison(before, after, commit, head, Recorded.newest(checkout.root))
        finally:
            for side in sides:
                side.stop_server()


def rows_of(pairs: Sequence[tuple[Figures, Figures]]) -> list[Row]:
    """Return for each figure both medians, and the quartiles and extremes of the pairs' ratios.

    The two of a pair ran one after the other, so what else the machine does concerns both.
    """
    keys = dict.fromkeys(key for pair in pairs for figures in reversed(pair) for key in figures)
    return [_row(key, [(one.get(key), two.get(key)) for one, two in pairs]) for key in keys]


def _row(key: str, pairs: Sequence[tuple[float | None, float | None]]) -> Row:
    ratios = [after / before for before, after in pairs if before and after is not None]
    spread = _spread_of(ratios) if len(ratios) == len(pairs) else dict.fromkeys(RATIOS)
    return {
        "figure": key,
        "before": middle([before for before, _ in pairs]),
        "after": middle([after for _, after in pairs]),
        **spread,
        "runs": len(pairs),
    }


def _spread_of(ratios: list[float]) -> dict[str, float | None]:
    quartiles = quantiles(ratios, method="inclusive") if len(ratios) > 1 else 3 * ratios
    values = (quartiles[1], quartiles[0], quartiles[2], min(ratios), max(ratios))
    return {name: round(value, 3) for name, value in zip(RATIOS, values, strict=True)}


def _refuse_other_dependencies(ours: Path, theirs: Path, ref: str) -> None:
    """Raise `UsageError` if the environment of this checkout does not fit the other commit."""
    missing = _dependencies(theirs) - _dependencies(ours)
    if missing:
        raise UsageError(
            f"{ref} needs what this checkout does not ({', '.join(sorted(missing))}); a comparison "
            "uses this environment and installs nothing"
        )


def _dependencies(tree: Path) -> frozenset[str]:
    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    except (FileNotFoundError, KeyError, tomllib.TOMLDecodeError):
        raise UsageError("the commit is not one of cortex: it has no pyproject.toml") from None
    return frozenset(project.get("dependencies", ()))


def _reported(stderr: str) -> str:
    """Return the message of a failed command."""
    last = stderr.strip().rpartition("\n")[2]
    try:
        return str(json.loads(last)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return last or "it ended without a message"


def _interrupt(child: "subprocess.Popen[str]") -> None:
    """End a measurement as Ctrl-C does, so that it removes its database; kill it if it hangs."""
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=STOP_BOUND_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _ratio(row: Row) -> Cell:
    return Cell(NOTHING if row["ratio"] is None else f"{row['ratio']:.2f}")


def _spread(row: Row) -> Cell:
    if row["ratio"] is None:
        return Cell(NOTHING)
    return Cell(f"{row['ratio_q1']:.2f} to {row['ratio_q3']:.2f}", "dim")


COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="bench"),
    Field(name="figure"),
    Field(name="before", shown=lambda row: Cell(shown(row["before"])), is_right=True),
    Field(name="after", shown=lambda row: Cell(shown(row["after"])), is_right=True),
    Field(name="ratio", shown=_ratio, is_right=True),
    Field(name="spread", shown=_spread, is_right=True, is_for_people=True),
    Field(name="recorded", shown=lambda row: Cell(shown(row["recorded"]), "dim"), is_right=True),
    *on_demand(*RATIOS[1:], "runs", "ref", "commit"),
)
