"""`python -m bench compare`: two versions of a small program in place of cortex, in turns."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.command import bench
from bench.compare import RATIOS, Bench, comparison, rows_of
from cortex.domain.errors import UnavailableError, UsageError
from tests.support.command_line import ROOT, Cortex
from tests.support.eventually import WITHIN_S, eventually
from tests.support.in_process import run_here

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
VERSION, FIGURES = {version!r}, {figures!r}
_, name, *arguments = sys.argv[1:]
if name not in FIGURES:
    sys.exit(2)
if arguments == ["--help"]:
    sys.exit(0)
if name == "broken":
    print(json.dumps({{"error": {{"message": "the disk is full"}}}}), file=sys.stderr)
    sys.exit(1)
log = Path(os.environ["TURNS"])
with log.open("a") as turns:
    print(VERSION, name, *arguments, os.environ["CORTEX_DATA"], file=turns)
if name == "endless":
    try:
        signal.pause()
    except KeyboardInterrupt:
        with log.open("a") as turns:
            print("cleaned up", file=turns)
        sys.exit(130)
print(json.dumps({{"schema_version": 1, "jobs": 7, "runs": 1, **FIGURES[name]}}))
"""
NEEDS = '[project]\ndependencies = ["trio"]\n'
BROKEN = Bench("broken", (), frozenset())
STEPS = Bench("steps", ("--jobs", "7"), frozenset({"jobs"}))


class Repository:
    """A git repository with two versions of the program; the second is not committed."""

    def __init__(self, root: Path, turns: Path) -> None:
        self.root, self._turns = root, turns
        (root / "cortex").mkdir(parents=True)
        self.git("init", "--quiet")
        (root / "pyproject.toml").write_text(NEEDS)
        (root / ".gitignore").write_text("__pycache__\n")
        self.write("old", {"steps": {"steps_per_s": 100}, "endless": {}, "broken": {}})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "old")
        new = {"steps_per_s": 150, "pod_us": 2.5}
        self.write("new", {"steps": new, "endless": {}, "broken": {}, "novel": {}})

    def write(self, version: str, figures: dict[str, dict[str, float]]) -> None:
        code = PROGRAM.format(version=version, figures=figures)
        (self.root / "cortex" / "__init__.py").touch()
        (self.root / "cortex" / "__main__.py").write_text(code)

    def git(self, *arguments: str) -> str:
        person = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        command = ["git", "-C", str(self.root), *person, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @property
    def turns(self) -> list[list[str]]:
        """Version, measurement, options and data folder of each run so far."""
        text = self._turns.read_text() if self._turns.exists() else ""
        return [line.split() for line in text.splitlines()]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("TURNS", str(tmp_path / "turns"))
    made = Repository(tmp_path / "repository", tmp_path / "turns")
    monkeypatch.setattr("cortex.__file__", str(made.root / "cortex" / "__init__.py"))
    return made


def test_both_versions_are_measured_in_turns(repository: Repository) -> None:
    before = repository.git("status", "--porcelain")
    with comparison("HEAD", dsn=None) as sides:
        scratch = sides.before.folder.parent
        rows = sides.figures([STEPS], repeat=2, show=lambda _: None)
    assert [turn[:2] for turn in repository.turns] == [["old", "steps"], ["new", "steps"]] * 2
    assert {tuple(turn[2:6]) for turn in repository.turns} == {("--jobs", "7", "--repeat", "1")}
    assert repository.turns[0][-1] != repository.turns[1][-1], "the same data for both"
    head = repository.git("rev-parse", "HEAD").strip()
    rate = {"before": 100, "after": 150} | dict.fromkeys(RATIOS, 1.5)
    new = {"before": None, "after": 2.5} | dict.fromkeys(RATIOS)
    of_all = {"bench": "steps --jobs 7", "ref": head, "commit": f"{head}+", "runs": 2}
    assert rows == [
        of_all | {"figure": "steps_per_s", "recorded": None} | rate,
        of_all | {"figure": "pod_us", "recorded": None} | new,
    ]
    assert not scratch.exists()
    assert repository.git("status", "--porcelain") == before
    assert len(repository.git("worktree", "list").splitlines()) == 1


def test_recorded_figures_of_the_newest_release_are_shown(
    repository: Repository,
) -> None:
    folder = repository.root / "docs" / "internals" / "figures"
    folder.mkdir(parents=True)
    for version, rate in [("unreleased", 70), ("1.9.0", 80), ("1.10.0", 90)]:
        (folder / f"{version}.toml").write_text(
            'machine = "two cores"\n[[measured]]\n'
            f'command = "cortex bench steps --jobs 7"\nfigures = {{ steps_per_s = {rate} }}\n'
        )
    with comparison("HEAD", dsn=None) as sides:
        rows = sides.figures([STEPS], repeat=1, show=lambda _: None)
    assert sides.recorded is not None
    assert (sides.recorded.release, sides.recorded.machine) == ("1.10.0", "two cores")
    assert {row["figure"]: row["recorded"] for row in rows} == {"steps_per_s": 90, "pod_us": None}


def test_a_ratio_is_taken_within_each_pair() -> None:
    before, after = (100, 50, 10, 20, 40), (110, 60, 9, 20, 80)
    (row,) = rows_of(
        [({"rate": one}, {"rate": two}) for one, two in zip(before, after, strict=True)]
    )
    assert (row["before"], row["after"], row["runs"]) == (40, 60, 5)
    assert [row[name] for name in RATIOS] == [1.1, 1.0, 1.2, 0.9, 2.0]


def test_a_measurement_that_only_one_version_has_is_refused(repository: Repository) -> None:
    with comparison("HEAD", dsn=None) as sides, pytest.raises(UsageError, match="HEAD has no"):
        sides.figures([STEPS, Bench("novel", (), frozenset())], repeat=1, show=lambda _: None)
    assert repository.turns == []


def test_the_message_of_a_failed_run_is_passed_on(repository: Repository) -> None:
    with comparison("HEAD", dsn=None) as sides, pytest.raises(UnavailableError) as raised:
        sides.figures([BROKEN], repeat=1, show=lambda _: None)
    assert raised.value.message == "`bench broken` of HEAD: the disk is full"


def test_a_commit_that_needs_less_is_compared(repository: Repository) -> None:
    (repository.root / "pyproject.toml").write_text('[project]\ndependencies = ["trio", "numpy"]\n')
    with comparison("HEAD", dsn=None) as sides:
        assert sides.before.tree != sides.after.tree


def test_a_commit_that_needs_more_is_refused(repository: Repository) -> None:
    (repository.root / "pyproject.toml").write_text('[project]\ndependencies = ["numpy"]\n')
    with pytest.raises(UsageError, match=r"HEAD needs what this checkout does not \(trio\)"):
        with comparison("HEAD", dsn=None):
            pass


@pytest.mark.parametrize("ref", ["nowhere", "--all", "HEAD:pyproject.toml"])
def test_an_unknown_commit_is_refused(repository: Repository, ref: str) -> None:
    with pytest.raises(UsageError, match="no commit"), comparison(ref, dsn=None):
        pass


def test_a_program_outside_of_a_checkout_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.__file__", str(tmp_path / "cortex" / "__init__.py"))
    with pytest.raises(UsageError), comparison("HEAD", dsn=None):
        pass


CTRL_C = """
import sys, cortex
cortex.__file__ = sys.argv[1]
from bench.compare import Bench, comparison
with comparison("HEAD", dsn=None) as sides:
    print(sides.before.folder.parent, flush=True)
    sides.figures([Bench("endless", (), frozenset())], repeat=1, show=lambda _: None)
"""


def test_ctrl_c_lets_the_running_measurement_clean_up(repository: Repository) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, str(repository.root / "cortex" / "__init__.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdout is not None
    scratch = Path(started.stdout.readline().strip())
    eventually(lambda: repository.turns, what="the measurement runs")
    assert scratch.exists()
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=WITHIN_S)
    assert started.returncode != 0, out
    assert repository.turns[-1] == ["cleaned", "up"]
    assert not scratch.exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("HEAD", "siege"), "no measurement 'siege' to compare"),
        (("HEAD", "tui"), "no measurement 'tui' to compare"),
        (("HEAD", "compare"), "no measurement 'compare' to compare"),
        (("HEAD", "steps --jobs many"), "'many' is not"),
        (("HEAD", "steps --repeat 3"), "--repeat in 'steps --repeat 3'"),
        (("HEAD", "steps 'a"), "no measurement with options"),
        ((), "missing argument 'REF'"),
    ],
)
def test_a_mistake_is_one_line(
    cortex_nowhere: Cortex, arguments: tuple[str, ...], message: str
) -> None:
    command = ("compare", *arguments)
    folder, environ = cortex_nowhere.folder, cortex_nowhere.environ(None)
    ended = run_here(command, env=environ, folder=folder, root=bench)
    assert (ended.code, ended.out) == (2, "")
    first, *others = ended.err.splitlines()
    assert message in first
    assert all(line.startswith("hint: ") for line in others)


def test_comparison_runs_the_real_measurements(cortex: Cortex) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("these files are in no git checkout")
    ended = cortex.bench("compare", "HEAD", "throughput --jobs 20", "--repeat", "1", "--json")
    assert ended.code == 0, ended.err
    figures = {row["figure"]: row for row in ended.document["figures"]}
    cost = {"pod_us_per_job", "postgres_us_per_job", "wal_bytes_per_job"}
    assert figures.keys() >= {"jobs_per_s", *cost}
    assert figures.keys().isdisjoint({"jobs", "backlog", "runs"})
    assert all(row["before"] > 0 and row["after"] > 0 for row in figures.values())
