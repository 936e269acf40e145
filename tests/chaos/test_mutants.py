"""The mutants fit the tree, and one of them is caught; all are left to the command itself."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.__main__ import chaos
from chaos.checkers import ALL as CHECKERS
from chaos.mutants import hunt
from chaos.mutants.catalogue import MUTANTS
from chaos.mutants.hunt import ROOT, Result, TrialFindings, is_good
from chaos.mutants.mutant import MIGRATIONS, Mutant, Patch, StaleError
from chaos.mutants.program import run_program
from chaos.mutants.scenes import SCENES
from chaos.mutants.storms import STORMS
from chaos.mutants.table import table
from chaos.plan import chosen
from tests.support.servers.postgres import run_asyncio

WITHIN_S = 200.0

by_name = pytest.mark.parametrize("mutant", [pytest.param(each, id=each.name) for each in MUTANTS])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that any mutant patches, and all migrations, in a copy."""
    migrations = {str(MIGRATIONS / each.name) for each in (ROOT / MIGRATIONS).iterdir()}
    for path in migrations | {patch.path for each in MUTANTS for patch in each.patches}:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / path).read_text("utf-8"), "utf-8")
    return tmp_path


@by_name
def test_a_mutant_fits_the_tree_and_is_still_python(mutant: Mutant, tree: Path) -> None:
    mutant.apply(tree)
    for patch in mutant.patches:
        text = (tree / patch.path).read_text("utf-8")
        assert text != (ROOT / patch.path).read_text("utf-8")
        if patch.path.endswith(".py"):
            compile(text, patch.path, "exec")


def test_each_checker_has_a_mutant_that_it_must_find() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
    assert {each.scene for each in MUTANTS} == {*SCENES, *STORMS}, "a scene that exposes nobody"
    numbers = {f"I{int(check.__module__.rpartition('.i')[2][:2])}" for check in CHECKERS}
    assert {each.invariant for each in MUTANTS} == {*numbers, *STORMS}


def test_patch_whose_text_is_not_unique_is_stale(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    mutant = Mutant(
        name="old",
        what="nothing",
        scene="calm",
        invariant="I1",
        patches=(Patch("a.py", "x = 1\n", "x = 2\n"),),
    )
    with pytest.raises(StaleError, match=r"mutant old is stale: its text stands 2 times in a\.py"):
        mutant.apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\nx = 1\n"


def test_patch_of_an_object_replaced_by_a_later_migration_is_stale(tmp_path: Path) -> None:
    migrations = tmp_path / MIGRATIONS
    migrations.mkdir(parents=True)
    function = "CREATE FUNCTION cortex.one() RETURNS int\n    RETURN 1;\n"
    (migrations / "0001_a.sql").write_text(function + "CREATE TRIGGER two AFTER UPDATE ON t;\n")
    (migrations / "0002_b.sql").write_text("CREATE OR REPLACE FUNCTION cortex.one_more()\n")
    one, two = (
        Patch("sql/migrations/0001_a.sql", old, "x") for old in ("RETURN 1;", "AFTER UPDATE")
    )
    one.apply(tmp_path)
    (migrations / "0001_a.sql").write_text(function + "CREATE TRIGGER two AFTER UPDATE ON t;\n")
    (migrations / "0003_c.sql").write_text("DROP FUNCTION cortex.one();\n")
    with pytest.raises(StaleError, match=r"0003_c\.sql replaces what it breaks in"):
        one.apply(tmp_path)
    two.apply(tmp_path)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_the_same_again_by_its_seed(name: str) -> None:
    scene = SCENES[name]
    assert scene.plan(3) == scene.plan(3)
    assert scene.plan(3).orders != scene.plan(4).orders
    assert len(scene.plan(3).orders) == len(scene.jobs) + scene.submitted_twice + scene.deploys
    assert {fault.nemesis for fault in scene.faults} <= set(chosen(()))


def test_mutant_table_lists_survivors_and_invalid_controls() -> None:
    calm = [each for each in MUTANTS if each.scene == "calm"][:2]
    caught, survivor = (
        Result(scene="calm", mutant=each, seed=7, took_s=1.0, findings=findings)
        for each, findings in zip(
            calm,
            (
                TrialFindings(invalid={calm[0].invariant: ["it is so"]}, stuck=None),
                TrialFindings(invalid={"I2": ["something else"]}, stuck=None),
            ),
            strict=True,
        )
    )
    control = Result(
        scene="calm",
        mutant=None,
        seed=7,
        took_s=1.0,
        findings=TrialFindings(invalid={}, stuck="nothing moved"),
    )
    failed = Result(scene="calm", mutant=calm[0], seed=9, took_s=1.0, error="exit code 1")
    output = table([control, caught, survivor, failed], first_seed=7)
    assert f"{calm[1].name}: {calm[1].invariant} was not broken; I2 was" in output
    assert "(calm): nothing moved" in output
    assert "9, try 3" in output
    assert "1 of 3 mutants were caught" in output
    assert f"{calm[1].name}, {calm[0].name} survived" in output
    assert "unbroken it breaks rules" in output
    assert is_good([caught])
    for bad in (control, survivor, failed):
        assert not is_good([caught, bad])


def test_unknown_mutant_name_is_a_usage_error() -> None:
    output = CliRunner().invoke(chaos, ["mutants", "--only", "no-such"])
    assert output.exit_code == 2
    assert "there is no mutant 'no-such'; known: no-fence, " in output.output


NO_INTENT = next(each for each in MUTANTS if each.name == "no-intent")


def test_each_mutant_is_tried_in_a_broken_copy_and_its_scene_in_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    async def look(scene: str, _seed: int, tree: Path, _report: Path | None) -> TrialFindings:
        assert scene == NO_INTENT.scene
        broken = [patch.new in (tree / patch.path).read_text() for patch in NO_INTENT.patches]
        tried.append(all(broken))
        invalid = {NO_INTENT.invariant: ["it is so"]} if all(broken) else {}
        return TrialFindings(invalid=invalid, stuck=None)

    monkeypatch.setattr(hunt, "_try", look)
    work = hunt.Hunt(folder=tmp_path, seed=1, at_once=1)
    results = run_asyncio(lambda: work.run([NO_INTENT]))
    assert tried == [False, True]
    assert is_good(results)


@pytest.mark.timeout(WITHIN_S + 20)
def test_a_runtime_without_intents_is_caught(tmp_path: Path) -> None:
    """A real trial. That the runtime as it is breaks no rule is what `chaos run` shows."""
    for part in hunt.PARTS:
        shutil.copytree(ROOT / part, tmp_path / part)
    NO_INTENT.apply(tmp_path)
    command = ("-m", "chaos.mutants.trial", NO_INTENT.scene, "1")
    output = run_asyncio(lambda: run_program(command, tmp_path, within_s=WITHIN_S))
    assert NO_INTENT.invariant in json.loads(output)["invalid"]
