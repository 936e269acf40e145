import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cortex.cli.apps import add_packages, load_app, registry_of
from cortex.domain.errors import UsageError

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the working folder; what it makes importable is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr("cortex.cli.apps._added", [])

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


JOB = """
from cortex.durable.registry import job

@job("from_app")
async def from_app(ctx): ...
"""


def test_app_file_imports_modules_beside_it(write: Write) -> None:
    write("shop/prices_of_test.py", "PRICE = 3")
    path = write("shop/till_of_test.py", f"from prices_of_test import PRICE\n{JOB}")
    assert load_app(path).PRICE == 3
    assert "from_app" in registry_of([path]).names
    assert "run_agent" in registry_of([path]).names


def test_package_of_the_working_folder_is_loaded(write: Write) -> None:
    write("pack_of_test/__init__.py", "")
    write("pack_of_test/work.py", JOB)
    assert "from_app" in registry_of(["pack_of_test.work"]).names


def test_a_package_is_loaded_with_its_modules_but_without_its_tests(
    write: Write, tmp_path: Path
) -> None:
    write("whole_of_test/__init__.py", "")
    write("whole_of_test/jobs/__init__.py", "")
    write("whole_of_test/jobs/daily.py", JOB)
    write("whole_of_test/jobs/test_daily.py", "raise AssertionError")
    write("whole_of_test/tests/__init__.py", "raise AssertionError")
    write("whole_of_test/__main__.py", "raise AssertionError")
    write("whole_of_test/migrate_now.py", "raise AssertionError")
    write("whole_of_test/again.py", "from whole_of_test.jobs.daily import from_app")
    assert "from_app" in registry_of(["whole_of_test"]).names
    assert "from_app" in registry_of([str(tmp_path / "whole_of_test")]).names
    broken = write("whole_of_test/broken.py", "import cortex\n1 / 0")
    with pytest.raises(UsageError, match=rf"^{broken}:2: ZeroDivisionError"):
        registry_of(["whole_of_test"])


def test_several_apps_share_resources_and_clash_by_place(write: Write) -> None:
    write(
        "shared_of_test.py",
        "from collections.abc import AsyncIterator\nfrom cortex import resource\n"
        "class Client: ...\n@resource\nasync def client() -> AsyncIterator[Client]:\n"
        "    yield Client()",
    )
    user = write(
        "user_of_test.py",
        "from cortex import Context, job\nfrom shared_of_test import Client\n"
        "@job\nasync def use(ctx: Context, client: Client) -> None: ...",
    )
    assert "use" in registry_of([user, "shared_of_test"]).names
    with pytest.raises(UsageError, match=rf"^{user}:3: job type 'use' takes a .*Client"):
        registry_of([user])
    other = write("other_of_test.py", "from cortex import job\n@job\nasync def use(ctx): ...")
    with pytest.raises(UsageError, match=rf"'use' is defined twice: {user}:3 and {other}:2"):
        registry_of([user, other, "shared_of_test"])


OWN = f"python{sys.version_info.major}.{sys.version_info.minor}"


def test_an_app_imports_from_a_virtual_environment_but_not_in_place_of_ours(
    write: Write, tmp_path: Path
) -> None:
    write("venv/pyvenv.cfg", "home = /nowhere")
    write(f"venv/lib/{OWN}/site-packages/only_there_of_test.py", "PRICE = 4")
    write(f"venv/lib/{OWN}/site-packages/attrs/__init__.py", "MINE = False")
    add_packages(tmp_path / "venv")
    path = write("shop_of_venv.py", "from only_there_of_test import PRICE\nimport attrs")
    assert load_app(path).PRICE == 4
    assert load_app(path).attrs is sys.modules["attrs"]
    assert sys.path[-1] == str(tmp_path / f"venv/lib/{OWN}/site-packages")


def test_a_virtual_environment_of_another_python_is_refused(write: Write, tmp_path: Path) -> None:
    write("venv/pyvenv.cfg", "home = /nowhere")
    write("venv/lib/python2.7/site-packages/any.py", "")
    with pytest.raises(UsageError, match=f"is for python2.7, and this is {OWN}"):
        add_packages(tmp_path / "venv")
    with pytest.raises(UsageError, match="is not a directory"):
        add_packages(tmp_path / "nothing")


def test_app_loaded_twice_runs_once(write: Write) -> None:
    path = write("once_of_test.py", JOB)
    assert load_app(path) is load_app(path)


def test_a_file_may_be_called_like_a_module(write: Write) -> None:
    path = write("json.py", "MINE = True")
    assert load_app(path).MINE
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    "text, line, output",
    [
        ("x = 1\nx +", 2, "invalid syntax"),
        ("\n\nraise ValueError('two\\nlines')", 3, "ValueError: two lines"),
        ("import no_such_module_at_all", 1, "No module named 'no_such_module_at_all'"),
        ("import sys\nsys.exit(3)", 2, "the app ends the process"),
        (
            "from cortex.durable.registry import job\n@job('x')\ndef sync(ctx): ...",
            2,
            "is not an async function",
        ),
        ("def f():\n    1 / 0\nf()", 2, "ZeroDivisionError: division by zero"),
    ],
)
def test_error_in_an_app_is_reported_with_file_and_line(
    write: Write, text: str, line: int, output: str
) -> None:
    path = write("broken_of_test.py", text)
    with pytest.raises(UsageError) as caught:
        load_app(path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert output in caught.value.message
    assert "\n" not in caught.value.message
    assert "broken_of_test" not in sys.modules


@pytest.mark.parametrize(
    "spec", ["none_of_test.py", "shop/none.py", "none_of_test", "a.b.c", "", "x" * 300 + ".py"]
)
def test_missing_app_is_refused_by_name(write: Write, spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_app(spec)
    assert repr(spec) in caught.value.message


def test_an_app_that_prints_while_it_is_imported_prints_to_stderr(write: Write) -> None:
    noise = (
        "import logging, os, sys\nprint('one')\nos.write(1, b'two')\nos.system('echo three')"
        "\nlogging.basicConfig(stream=sys.stdout)"
    )
    app = write("loud_of_test.py", noise)
    program = f"""
import logging, sys
from cortex.cli.apps import load_app
load_app({str(app)!r})
sys.stdout.write("data\\n")
logging.warning("later")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "data\nWARNING:root:later\n", "handlers keep the stream that they chose"
    assert all(word in done.stderr for word in ("one", "two", "three"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("class Odd(BaseException): ...\nraise Odd('x')", r"odd_of_test.py:2: Odd: x"),
        ("raise GeneratorExit", r"odd_of_test.py:1: GeneratorExit"),
        ("raise SystemExit(0)", r"odd_of_test.py:1: the app ends the process"),
        ("import odd_of_test\nodd_of_test.nothing", r"odd_of_test.py:2: AttributeError"),
    ],
)
def test_an_app_that_ends_oddly_while_it_is_imported_is_refused(
    write: Write, text: str, words: str
) -> None:
    path = write("odd_of_test.py", text)
    with pytest.raises(UsageError, match=words):
        load_app(path)
