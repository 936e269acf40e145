"""`python -m tests.support.gate.selection FOLDER [BASE]`: what a change selects, for `.ci/quick`.

Prints one line for each reason. Writes `kind`, `tests` (arguments of pytest; none are all of them)
and `sources` (changed files of Python that exist) to the folder, one value a line.
"""

import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.support.gate.importers import importers_of, tests_of
from tests.support.gate.rules import ALWAYS, RULES, Kind, Rule
from tests.support.gate.smoke import smoke_tests

ROOT: Final = Path(__file__).parents[3]
MAINS: Final = ("main", "origin/main")
NOT_A_SUBJECT: Final = frozenset({"a", "and", "app", "in", "init", "of", "test", "the", "to"})
PATHS_MAX: Final = 3
TESTS_MAX: Final = 8
"""How many a line names."""


@frozen
class Reason:
    """One line of the report: which changed paths select which tests."""

    name: str
    paths: tuple[str, ...]
    tests: tuple[str, ...]

    def __str__(self) -> str:
        one_by_one = [test for test in self.tests if "::" in test]
        tests = [test for test in self.tests if "::" not in test]
        tests += [f"{len(one_by_one)} tests"] if one_by_one else []
        shown = _some(tests, TESTS_MAX) or "no test of its own"
        return f"{self.name:10} {_some(self.paths, PATHS_MAX)} → {shown}"


@frozen
class Selection:
    """The kind of a change, its tests and why; no tests are all of them."""

    kind: Kind
    tests: tuple[str, ...]
    reasons: tuple[Reason, ...]


def rule_of(path: str) -> Rule | None:
    """Return the first rule that knows a path."""
    return next((rule for rule in RULES if path.startswith(rule.paths)), None)


def select(changed: Iterable[str]) -> Selection:
    """Return what changed paths, those of deleted files too, select in the tree as it is."""
    rules = {path: rule_of(path) for path in sorted(changed)}
    reasons = []
    for rule in dict.fromkeys(rules.values()):
        paths = tuple(path for path, each in rules.items() if each is rule)
        if rule is None or rule.kind is Kind.EVERYTHING:
            reason = Reason(rule.name if rule else "no rule", paths, ("every test",))
            return Selection(Kind.EVERYTHING, (), (reason,))
        own = {test for path in paths if path.startswith("tests/") for test in tests_of(path)}
        own |= {test for path in paths for test in about(path, rule)}
        reasons.append(Reason(rule.name, paths, (*rule.tests, *sorted(own))))
    modules = tuple(path for path in rules if path.endswith(".py"))
    if importing := {test for path in modules for test in importers_of(path)}:
        reasons.append(Reason("importers", modules, tuple(sorted(importing))))
    kind = max((rule.kind for rule in rules.values() if rule), default=Kind.DOCUMENTS)
    if any("tests" in reason.tests for reason in reasons):
        return Selection(Kind.EVERYTHING, (), tuple(reasons))
    if kind is not Kind.DOCUMENTS:
        smoke = {test for tests in smoke_tests().values() for test in tests}
        reasons.append(Reason("always", ("code",), ALWAYS))
        reasons.append(Reason("smoke", ("code",), tuple(sorted(smoke))))
    tests = {test for reason in reasons for test in reason.tests}
    return Selection(kind, without_nested(tests), tuple(reasons))


def about(path: str, rule: Rule) -> list[str]:
    """Return what of a rule's folders shares a word with a path; all of them if nothing does."""
    (start,) = [each for each in rule.paths if path.startswith(each)]
    subject = _words(path.removeprefix(start))
    found = [
        file.relative_to(ROOT).as_posix()
        for folder in rule.by_subject
        for file in sorted((ROOT / folder).rglob("test_*.py"))
        if subject & _words(file.relative_to(ROOT / folder).as_posix())
    ]
    return found or list(rule.by_subject)


def _words(path: str) -> set[str]:
    """Return the words of a path in the singular, without its suffix."""
    words = re.findall("[a-z]+", path.rpartition(".")[0])
    return {word.removesuffix("s") for word in words} - NOT_A_SUBJECT


def without_nested(tests: Collection[str]) -> tuple[str, ...]:
    """Return the tests without those that a folder or file among them holds."""
    found = {
        test
        for test in tests
        if not any(test.startswith((f"{each}/", f"{each}::")) for each in tests)
    }
    return tuple(sorted(found))


def changed_since(base: str | None) -> list[str]:
    """Return the paths that differ from a commit in the working tree, untracked ones too.

    From the merge base with the main branch by default.
    """
    since = _commit(base) if base else _default_base()
    if since is None:
        sys.exit(f"{base} is no commit: .ci/quick takes one to compare the tree with")
    differing = _git("diff", "--name-only", "--no-renames", "-z", since)
    untracked = _git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in f"{differing}{untracked}".split("\0") if path})


def _default_base() -> str:
    is_on_main = _git("branch", "--show-current") == MAINS[0]
    for name in reversed(MAINS) if is_on_main else MAINS:
        if commit := _commit(name):
            return _git("merge-base", "HEAD", commit)
    sys.exit("neither main nor origin/main exists: name a base, .ci/quick COMMIT")


def _commit(name: str) -> str | None:
    words = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    ended = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    return ended.stdout.strip() or None  # empty if there is none


def _git(*words: str) -> str:
    ended = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"git {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def _some(words: Collection[str], most: int) -> str:
    more = len(words) - most
    return " ".join([*list(words)[:most], *([f"and {more} more"] if more > 0 else [])])


def main() -> None:
    """Print the reasons and write the selection."""
    folder, *base = sys.argv[1:]
    changed = changed_since(base[0] if base else None)
    selection = select(changed)
    for reason in selection.reasons:
        sys.stdout.write(f"{reason}\n")
    sources = [path for path in changed if path.endswith(".py") and (ROOT / path).exists()]
    values = {
        "kind": [selection.kind.name.lower()] if changed else [],
        "tests": selection.tests,
        "sources": sources,
    }
    for name, lines in values.items():
        (Path(folder) / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
