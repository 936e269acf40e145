"""The version of a pod's code: one digest for the same sources, another one for any other."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import cortex
from cortex.cli.apps import load_app
from cortex.cli.run.code_version import code_version, version_of
from cortex.config import Settings
from cortex.domain.errors import UsageError

SHOP = {
    "app.py": "import prices_of_test\n\nasync def f(ctx):\n    import late_of_test\n",
    "prices_of_test.py": "PRICE = 3\n",
    "late_of_test.py": "from pack_of_test.deep import work\n",
    "pack_of_test/__init__.py": "",
    "pack_of_test/deep/work.py": "RATE = 1\n",
}


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def version(folder: Path, spec: str, files: Mapping[str, str], **kwargs: list[Path]) -> str:
    """Return the version of an application that consists of these files and no others."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules, path_before = dict(sys.modules), list(sys.path)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            return code_version([load_app(spec)], **kwargs)
    finally:
        sys.modules.clear()
        sys.modules.update(modules)
        sys.path[:] = path_before


@pytest.mark.parametrize("spec", ["app.py", "app", "pack_of_test.deep.work"])
def test_same_sources_have_the_same_version_everywhere(tmp_path: Path, spec: str) -> None:
    first = version(tmp_path / "one", spec, SHOP)
    again = version(tmp_path / "one", spec, {})  # now with compiled files
    os.utime(tmp_path / "one/app.py", (1, 1))
    elsewhere = version(
        tmp_path / "two", spec, {name: text.replace("\n", "\r\n") for name, text in SHOP.items()}
    )
    beside = version(tmp_path / "one", spec, {"unused_of_test.py": "", ".#app.py": "", "x.md": ""})
    assert {again, elsewhere, beside, version(tmp_path / "one", spec, {})} == {first}


@pytest.mark.parametrize("name", [*SHOP, "pack_of_test/new.py"])
@pytest.mark.parametrize("spec", ["app.py", "app"])
def test_a_changed_source_has_another_version(tmp_path: Path, spec: str, name: str) -> None:
    first = version(tmp_path, spec, SHOP)
    assert version(tmp_path, spec, {name: SHOP.get(name, "") + "# changed\n"}) != first


def test_a_version_leaves_out_installed_packages_unless_the_app_is_one(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "pack_of_test").mkdir(parents=True)
    sys.path.append(str(site))
    files = {"app.py": "import pack_of_test.work\n"}
    work, other = site / "pack_of_test/work.py", site / "other_of_test.py"

    def versions() -> tuple[str, str]:
        return version(tmp_path / "own", "app.py", files), version(
            tmp_path / "own", "pack_of_test.work", {}
        )

    work.write_text("import other_of_test\n")
    other.write_text("")
    first = versions()
    other.write_text("A = 1\n")
    assert versions() == first
    work.write_text("import other_of_test\nB = 2\n")
    assert versions()[0] == first[0]
    assert versions()[1] != first[1]


def test_a_version_leaves_out_the_packages_of_path(tmp_path: Path) -> None:
    added = (tmp_path / "added").resolve()
    added.mkdir()
    sys.path.append(str(added))
    library = added / "library_of_test.py"
    library.write_text("A = 1\n")
    files = {"app.py": "import library_of_test\n"}
    as_package = version(tmp_path / "own", "app.py", files, installed=[added])
    as_own = version(tmp_path / "own", "app.py", files)
    library.write_text("A = 2\n")
    assert version(tmp_path / "own", "app.py", files, installed=[added]) == as_package
    assert version(tmp_path / "own", "app.py", files) != as_own  # a folder of PYTHONPATH


def test_another_version_of_cortex_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version(tmp_path, "app.py", SHOP)
    monkeypatch.setattr(cortex, "__version__", "999")
    assert version(tmp_path, "app.py", {}) != first


def test_a_pod_without_an_app_has_the_version_of_cortex() -> None:
    assert code_version([]) == f"cortex {cortex.__version__}"
    assert version_of([], Settings(code_version="1.4.2")) == "1.4.2"


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 101])
def test_a_version_is_a_short_line(text: str) -> None:
    with pytest.raises(UsageError, match="code_version"):
        Settings(code_version=text)
