"""The folder that a job declares: the files that programs may and may not write there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from cortex.agent.confinement.means import Confiner, best_means, works
from cortex.agent.confinement.process import Completed, run_confined
from cortex.agent.confinement.writable import reason_against
from cortex.domain.confinement import Confinement
from cortex.domain.errors import RejectedError
from tests.support.pod_place import AS_ROOT, CANARY, POD_UID, ROOT, Place, a_place

WORK = """
cat readme; echo result > {workspace}/report; touch $TMPDIR/x
echo more >> readme; echo new > sub/new; mv sub/new sub/newer; mkdir sub/deep
"""


def test_the_folder_and_the_workspace_are_written(confined: tuple[Confinement, Place]) -> None:
    means, place = confined
    folder = place.root / "folder"
    (folder / "sub").mkdir()
    os.chown(folder / "sub", place.uid, place.uid) if AS_ROOT else None
    script = WORK.format(workspace=place.workspace)
    done = place.run(means, "sh", "-ec", script, folder=folder)
    if means is Confinement.USER:
        assert "readme: Permission denied" in done["stderr"]
        assert f"[folder {folder} is read-only: confined by user]" in done["stderr"]
        return
    assert (done["exit_code"], done["stdout"]) == (0, "readable"), done["stderr"]
    assert (place.workspace / "report").read_text() == "result\n"
    assert (folder / "readme").read_text() == "readablemore\n"
    made = [folder / "sub" / "newer", folder / "sub" / "deep"]
    assert all(each.exists() for each in made)
    if place.uid:
        assert {each.stat().st_uid for each in made} == {place.uid}


def test_owner_keeps_files_that_programs_of_a_root_pod_create() -> None:
    if not AS_ROOT or not works(Confinement.BUBBLEWRAP):
        pytest.skip("only a pod of root runs programs as others")
    with a_place(0) as place:
        folder = place.root / "folder"
        subprocess.run(["chown", "-R", f"{POD_UID}:{POD_UID}", str(folder)], check=True)
        folder.chmod(0o700)
        done = place.run(Confinement.BUBBLEWRAP, "sh", "-c", "id -u; echo new > new", folder=folder)
        assert (done["exit_code"], done["stdout"]) == (0, f"{POD_UID}\n"), done["stderr"]
        assert (folder / "new").stat().st_uid == POD_UID
        # The next job has another user or this one: the workspace is handed over.
        assert place.run(Confinement.BUBBLEWRAP, "touch", "mine")["exit_code"] == 0


PLANTING = (
    *("echo x > .git/hooks/pre-commit", "echo x >> .git/config", "echo x > .git/HEAD"),
    *("mv .git away", "rm -rf .git", "rm .git/HEAD", "chmod 777 .git", "touch .git/index.lock"),
    *("ln -s /tmp .git/objects/aa", "ln -sfn /tmp .git", "ln .git/config mine && echo x > mine"),
    *("mkdir .git/hooks", "cp -r .git $TMPDIR/g && mv -T $TMPDIR/g .git"),
    *("exec 3>>.git/config", "mv .git/hooks hooks", "mv ../folder ../other", "rmdir .git/refs"),
    *("git commit --allow-empty -m evil", "git config core.fsmonitor evil", "git stash"),
    *("git -C sub config core.hooksPath /tmp", "git branch evil", "git update-ref -d HEAD"),
    *("cd /proc/self/cwd && echo x > .git/config", "cd /proc/1/root{folder} && echo x > .git/HEAD"),
    *(
        "echo x > /proc/$PPID/cwd/.git/config",
        "for n in /proc/*/fd/*; do echo x > $n/.git/HEAD; done",
    ),
    *("mount -o remount,rw .git", "umount .git", "umount -l .git", "unshare -Urm umount .git"),
    *("echo x > cortex.toml", "mv cortex.toml mine", "rm cortex.toml", "sed -i s/a/b/ cortex.toml"),
    *("perl -e 'rename(q(.git), q(x)) or exit 1'", "echo x > sub/../.git/config"),
)


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = [each for each in sorted(folder.rglob("*")) if each.is_file()]
    return {
        str(each.relative_to(folder)): (
            each.stat().st_ino,
            each.stat().st_mode,
            each.read_bytes(),
        )
        for each in found
    }


def test_program_cannot_change_the_repository_of_its_folder(
    confined: tuple[Confinement, Place],
) -> None:
    means, place = confined
    folder = place.root / "folder"
    shutil.rmtree(folder / ".git")
    (folder / "sub").mkdir()
    (folder / "cortex.toml").write_text("a = 1\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run(["chown", "-R", f"{place.uid}:{place.uid}", str(folder)], check=True)
    before = contents(folder / ".git")
    script = ["cd {folder}", "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x EMAIL=x@x"]
    # What is tried first must not be what keeps the next ones from succeeding.
    script += [f"({each}) || :; cd {{folder}}" for each in PLANTING]
    whole = "\n".join(script).replace("{folder}", str(folder))
    place.run(means, "sh", "-c", whole, folder=folder)
    assert contents(folder / ".git") == before
    assert (folder / "cortex.toml").read_text() == "a = 1\n"
    assert folder.is_dir()


def test_planting_changes_the_repository_unconfined(tmp_path: Path) -> None:
    """Unconfined, most of it changes the repository."""
    succeeded = 0
    for number, each in enumerate(PLANTING):
        folder = tmp_path / str(number) / "folder"
        (folder / "sub").mkdir(parents=True)
        (folder / "cortex.toml").write_text("a = 1\n")
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        before = contents(folder)
        script = each.replace("{folder}", str(folder))
        if "mount" in script or "/proc/" in script:
            continue
        environment = {**os.environ, "TMPDIR": str(tmp_path / str(number)), "EMAIL": "x@x"}
        subprocess.run(
            ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, check=False
        )
        succeeded += not folder.exists() or contents(folder) != before
    assert succeeded > 20


@pytest.mark.parametrize(
    "reason, make",
    [
        ("Cortex keeps its data or settings there", "mkdir -p folder/.config; mv data folder/data"),
        ("another repository is in", "git init -q folder/sub/deep"),
        ("has submodules", "git -C folder -c protocol.file.allow=always submodule -q add ../other"),
        ("its .git is a symlink", "mv folder/.git other2; ln -s ../other2 folder/.git"),
        ("its path leads through a symlink", "mv folder real; ln -s real folder"),
        ("which programs are run from", "mkdir folder/bin"),
    ],
)
def test_a_folder_that_somebody_trusts_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, make: str
) -> None:
    means = best_means()
    if means is Confinement.NONE:
        pytest.skip("this machine has no means to confine programs")
    folder = tmp_path.resolve() / "folder"
    identity = "git config --global user.email x@x; git config --global user.name x"
    prepare = "git init -q folder; git init -q other; git -C other commit -q --allow-empty -m x"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "data" / "workspaces" / "job").mkdir(parents=True)
    subprocess.run(["sh", "-ec", f"{identity}; {prepare}; {make}"], cwd=tmp_path, check=True)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    if reason != "which programs are run from":
        monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    confiner = Confiner(means=means, hidden=(folder / "data",) if "data" in reason else ())
    launch = confiner.launch(workspace=workspace, folder=folder, has_network=False)
    launch.end()
    assert reason in launch.note


def test_code_settings_and_homes_are_trusted(tmp_path: Path) -> None:
    for folder in (ROOT, Path.home(), Path("/"), Path("/etc/ssl"), Path(sys.prefix, "lib")):
        assert reason_against(folder.resolve(), ())
    assert reason_against(tmp_path.resolve(), (tmp_path.resolve() / "cortex.toml",))
    assert reason_against(tmp_path.resolve(), ()) is None


def test_a_folder_that_is_replaced_before_the_start_is_not_followed() -> None:
    means = best_means()
    if means is Confinement.NONE:
        pytest.skip("this machine has no means to confine programs")
    with a_place(os.geteuid()) as place:
        folder = place.root / "folder"
        launch = Confiner(means=means).launch(
            workspace=place.workspace, folder=folder, has_network=False
        )
        folder.rename(place.root / "moved")
        folder.symlink_to(place.root / "home")
        script = "cat .pgpass .config/cortex/config.toml; echo x > planted; cat readme"

        async def run() -> Completed:
            return await run_confined(
                ["sh", "-c", script], launch=launch, timeout_s=30, output_max_bytes=10_000
            )

        done = trio.run(run)
        assert CANARY not in done.stdout + done.stderr
        assert not (place.root / "home" / "planted").exists()


def test_read_only_agent_cannot_write_to_the_folder(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    means, place = confined_as_me
    folder = place.root / "folder"
    done = place.run(means, "sh", "-c", "echo x > readme", folder=folder, writes=False)
    assert (folder / "readme").read_text() == "readable"
    if means is not Confinement.USER:
        assert f"[folder {folder} is read-only: by its agent]" in done["stderr"]


def test_hidden_files_in_the_folder_stay_hidden(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    means, place = confined_as_me
    home = place.root / "home"
    home.chmod(0o755)
    done = place.run(means, "sh", "-c", "cat .config/cortex/config.toml", folder=home)
    assert CANARY not in done["stdout"]


def test_no_program_starts_in_a_folder_of_cortex(tmp_path: Path) -> None:
    confiner = Confiner(means=Confinement.BUBBLEWRAP, hidden=(tmp_path / "data",))
    with pytest.raises(RejectedError, match="belongs to Cortex itself"):
        confiner.launch(
            workspace=tmp_path / "data/workspaces/job",
            folder=tmp_path / "data/pgdata",
            has_network=False,
        )
