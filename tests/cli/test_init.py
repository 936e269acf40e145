"""`cortex init`: a project that runs, whole or not at all."""

import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from cortex import testing
from cortex.cli.apps import load_app
from cortex.cli.project import init
from cortex.durable.registry import Registry
from tests.support.command_line import Cortex


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_init_writes_a_project_whose_files_are_read(
    cortex: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cortex.folder / "shop").mkdir()  # without files: it may be there
    written = cortex("init", "shop")
    assert written.code == 0, written.err
    assert "  cd shop\n  cortex run app.py refund_order number=1042" in written.out
    folder = cortex.folder / "shop"
    assert files_of(folder) == {*init.FILES}
    assert all(init.PLACE not in (folder / each).read_text() for each in init.FILES)
    assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == "shop"
    compose = yaml.safe_load((folder / "docker-compose.yml").read_text())
    assert compose["services"].keys() == {"database", "pod"}
    workflow = yaml.safe_load((folder / ".github" / "workflows" / "ci.yml").read_text())
    runs = [step.get("run") for step in workflow["jobs"]["check"]["steps"]]
    assert "uv run cortex preflight app.py" in runs
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    registry = Registry()
    registry.collect(load_app(str(folder / "app.py")))
    assert registry.names == ("refund_order",)
    assert cortex("agents", "apply", "shop/clerk.yaml").code == 0


async def test_the_test_of_the_project_passes(
    cortex_nowhere: Cortex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cortex_nowhere("init", "shop").code == 0
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    module = load_app(str(tmp_path / "shop" / "test_app.py"))
    (test,) = (value for name, value in vars(module).items() if name.startswith("test_"))
    with testing.Cortex() as harness:
        await test(harness, tmp_path, monkeypatch)
    assert len(list((tmp_path / "bank").iterdir())) == 1


@pytest.mark.parametrize(
    "name, message",
    [
        ("shop", "folder shop has files already"),
        ("shop/kept", "cannot write shop/kept: Not a directory"),
        (".", "'.' cannot be the name of a project"),
        ("a b", "'a b' cannot be the name of a project"),
        ("link", "folder link has files already"),
    ],
)
def test_init_leaves_what_is_there(cortex_nowhere: Cortex, name: str, message: str) -> None:
    folder = cortex_nowhere.folder
    (folder / "shop").mkdir()
    (folder / "shop" / "kept").touch()
    (folder / "link").symlink_to("nowhere")
    before = files_of(folder)
    ended = cortex_nowhere("init", name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {message}\n")
    assert files_of(folder) == before


def test_init_that_fails_in_the_middle_leaves_nothing(
    cortex_nowhere: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_of = init.text_of

    def on_a_full_disk(template: str, name: str) -> str:
        if template == "pyproject.toml":
            raise OSError(28, "No space left on device")
        return text_of(template, name)

    monkeypatch.setattr(init, "text_of", on_a_full_disk)
    ended = cortex_nowhere("init", "shop")
    assert (ended.code, ended.err) == (2, "error: cannot write shop: No space left on device\n")
    assert list(cortex_nowhere.folder.iterdir()) == []
