"""Imports of commands: they are most of the time that a command takes to start."""

import subprocess
import sys

import pytest

from tests.support.command_line import Cortex

LIST = """
import sys
at_start = set(sys.modules)
{before}
print("--", *sorted(set(sys.modules) - at_start), sep="\\n")
"""
PROVIDERS = {"anthropic", "google", "httpx", "httpx2", "mcp", "mcp_types", "openai"}
"""Clients of models and of servers of tools, and what they send requests with."""
RUN = "from cortex.cli.main import run; assert run({words!r}) == 0"


def imported(cortex: Cortex, before: str) -> set[str]:
    """The modules that these lines import in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", LIST.format(before=before)],
        cwd=cortex.folder,
        env=cortex.environ(None),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.partition("--\n")[2].split())


def others(modules: set[str]) -> set[str]:
    """The packages that are neither Cortex's nor Python's."""
    packages = {name.partition(".")[0] for name in modules}
    return {name for name in packages if not name.startswith("_")} - {
        "cortex",
        "cython_runtime",  # no package: asyncpg's compiled half makes it
        *sys.stdlib_module_names,
    }


def rooms(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("cortex.")}


@pytest.mark.parametrize("words", [["--help"], ["jobs", "--help"], ["--version"]])
def test_help_imports_click_only(cortex_nowhere: Cortex, words: list[str]) -> None:
    modules = imported(cortex_nowhere, RUN.format(words=words))
    assert others(modules) == {"click"}
    assert rooms(modules) == {"cli", "domain"}
    assert not modules & {"asyncio", "json", "cortex.cli.screen", "cortex.cli.target"}


@pytest.mark.parametrize(
    "words", [["jobs", "ls"], ["pods", "ls"], ["agents", "ls"], ["jobs", "types"]]
)
def test_lists_import_the_driver_and_records_only(cortex: Cortex, words: list[str]) -> None:
    modules = imported(cortex, RUN.format(words=words))
    assert others(modules) == {"asyncpg", "attr", "attrs", "click", "orjson", "platformdirs"}
    needed = {
        "cli",
        "config",
        "crash_points",
        "domain",
        "postgres",
        "settings_file",
        "store",
        "view",
    }
    assert rooms(modules) == needed
    assert not any(name.startswith("cortex.postgres.embedded") for name in modules)
    assert "tomllib" not in modules


def test_listing_jobs_imports_no_other_records(cortex: Cortex) -> None:
    modules = imported(cortex, RUN.format(words=["jobs", "ls"]))
    store = {name.removeprefix("cortex.store.") for name in modules if ".store." in name}
    records = {"jobs", "job_pages", "why"}
    assert store == records | {"lost_replies", "references", "rows", "tenants"}
    assert not modules & {"cortex.domain.drain", "cortex.domain.timeouts", "cortex.view.pods"}


def test_cortex_and_its_agents_import_no_provider(cortex_nowhere: Cortex) -> None:
    assert not others(imported(cortex_nowhere, "import cortex")) & PROVIDERS
    names = (
        "from cortex import *; import cortex.agent.loop, cortex.agent.spec, cortex.durable.context"
    )
    modules = imported(cortex_nowhere, names)
    assert "cortex.agent.spec" in modules
    assert not others(modules) & PROVIDERS


def test_a_pod_imports_no_client_screen_or_page(cortex_nowhere: Cortex) -> None:
    modules = imported(cortex_nowhere, "import cortex.cli.run.up")
    assert {"trio", "structlog", "cortex.runtime.pod"} <= modules
    heavy = {"hypercorn", "jinja2", "pydantic", "pygments", "rich", *PROVIDERS}
    assert not others(modules) & {*heavy, "starlette", "textual", "yaml"}
    assert not rooms(modules) & {"bench", "demo", "http", "view"}


def test_tests_of_jobs_import_no_pod_screen_or_client(cortex_nowhere: Cortex) -> None:
    modules = imported(cortex_nowhere, "import cortex.testing.plugin")
    assert not modules & {"attrs", "structlog", "trio"}, "most tests need no job"
    modules = imported(cortex_nowhere, "import cortex.testing.harness")
    heavy = {"anthropic", "asyncpg", "hypercorn", "jinja2", "pydantic", "rich", "starlette"}
    assert not others(modules) & {*heavy, "textual", "yaml"}
    assert "cortex.runtime.pod" not in modules
    assert not rooms(modules) & {"bench", "cli", "demo", "http", "postgres", "store", "view"}


def test_only_imports_go_without_the_garbage_collector(cortex_nowhere: Cortex) -> None:
    disabled = "import gc; gc.disable(); " + RUN
    imported(cortex_nowhere, disabled.format(words=["version"]) + "; assert gc.isenabled()")
