"""Families under kills: the short form of `python -m chaos families`, and its judge."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from chaos.families import app
from chaos.families.judge import judge
from chaos.families.storm import Member, Storm, bench_in, storm
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import make_home, remove_servers

BEGAN = datetime(2026, 11, 29, tzinfo=UTC)
FAMILY = "0"


@pytest.fixture
def families_bench(run_dir: Path) -> Iterator[Callable[..., Storm]]:
    """Runs a storm on a server of its own."""
    folder = make_home(run_dir)

    async def run(**terms: Any) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, **terms)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        yield lambda **terms: runner.run(run(**terms))
    remove_servers(folder)


def test_killed_pods_leave_each_family_as_its_paths_say(
    families_bench: Callable[..., Storm],
) -> None:
    seed = seeded_random().getrandbits(32)
    verdict = judge(families_bench(count=4, kills=1, seed=seed))
    assert verdict.problems == ()
    assert (verdict.families, verdict.kills, verdict.open) == (4, 1, 0)


# --- the judge alone


def member(
    path: str, kind: str, parent: UUID | None = None, step: str | None = None, ordinal: int = 0
) -> Member:
    outcome = app.outcome(path)
    status = outcome if outcome in ("CANCELLED", "FAILED") else "COMPLETED"
    began = BEGAN + timedelta(seconds=ordinal)
    return Member(
        id=new_id(),
        type=kind,
        path=path,
        status=status,
        result=outcome if status == "COMPLETED" else None,
        error=None,
        parent_id=parent,
        created_at=began,
        finished_at=began + timedelta(seconds=1),
        step=step,
        ordinal=None if parent is None else ordinal,
        ends=1,
    )


@pytest.fixture(scope="module")
def calm() -> Storm:
    """What a family leaves without any trouble."""
    root = member(FAMILY, "kin_family")
    members = [
        root,
        member(app.spawned(FAMILY), "kin_leaf", root.id, "one"),
        member(app.submitted(FAMILY), "kin_leaf", root.id, "aside"),
    ]
    for number, path in enumerate(app.below(FAMILY)):
        branch = member(path, "kin_branch", root.id, "kin_branch", number)
        members.append(branch)
        members += [
            member(each, "kin_leaf", branch.id, "kin_leaf", place)
            for place, each in enumerate(app.below(path))
        ]
    return Storm(families=[FAMILY], members=members)


def test_judge_finds_nothing_wrong_with_a_whole_family(calm: Storm) -> None:
    assert judge(calm).problems == ()
    assert {"CANCELLED", "FAILED", "COMPLETED"} == {each.status for each in calm.members}


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda leaf: [leaf, evolve(leaf, id=new_id())], "has 2 jobs"),
        (lambda _: [], "has no job"),
        (lambda leaf: [evolve(leaf, ordinal=7)], "is child 7 of step"),
        (lambda leaf: [evolve(leaf, ends=2)], "ended 2 times"),
        (lambda leaf: [evolve(leaf, status="CANCELLED")], "is CANCELLED, not COMPLETED"),
        (lambda leaf: [evolve(leaf, status="RETRY", finished_at=None)], "is RETRY"),
        (lambda leaf: [evolve(leaf, result="another")], "returned another"),
    ],
)
def test_judge_finds_a_wrong_child(
    calm: Storm, change: Callable[[Member], list[Member]], says: str
) -> None:
    leaf = next(each for each in calm.members if each.path.count(".") == 2 and each.result)
    others = [each for each in calm.members if each is not leaf]
    problems = judge(evolve(calm, members=[*others, *change(leaf)])).problems
    assert any(says in each for each in problems), problems


def test_judge_counts_how_many_children_of_a_map_overlap(calm: Storm) -> None:
    members = [evolve(each, created_at=BEGAN - timedelta(hours=1)) for each in calm.members]
    verdict = judge(evolve(calm, members=members))
    assert verdict.most_at_once > app.AT_ONCE
    assert any("children of a map ran at once" in each for each in verdict.problems)


def test_judge_finds_what_is_left_to_be_done(calm: Storm) -> None:
    assert judge(evolve(calm, left=3)).problems == ("3 waits, lists or children are left",)
