"""The rules of `.ci/quick`: which tests a change needs, by the paths that changed.

The first rule with a prefix of a path decides; a path that no rule knows selects every test. A
changed test file selects itself, and a changed module of Python also the test files that import it,
directly or by way of `tests.support`. Large folders of a surface are selected by subject: those of
their test files that share a word with the changed path, all of them if none does.
`tests/test_quick_gate.py` keeps the rules complete.
"""

from enum import IntEnum, auto
from typing import Final

from attrs import frozen


class Kind(IntEnum):
    """The subject of a change, from the cheapest to the dearest."""

    DOCUMENTS = auto()
    LEAF = auto()
    CORE = auto()
    EVERYTHING = auto()


@frozen
class Rule:
    """Paths that belong together, and the tests that a change of them needs."""

    name: str
    paths: tuple[str, ...]
    """Prefixes of paths from the root of the repository."""
    tests: tuple[str, ...] = ()
    """Files and folders for pytest."""
    by_subject: tuple[str, ...] = ()
    """Folders of which only the files about the changed path are selected."""
    kind: Kind = Kind.LEAF


def e2e(*subjects: str) -> tuple[str, ...]:
    """Return the end-to-end test files of some subjects."""
    return tuple(f"tests/e2e/test_{each}.py" for each in subjects)


# --- what every change of code runs, besides the smoke tests

ALWAYS: Final = (
    "tests/test_docs.py",
    "tests/test_frozen.py",
    "tests/test_quick_gate.py",
    "tests/test_tidy.py",
)

# --- the end-to-end groups of the core

DATABASE: Final = e2e(
    "database_trouble", "failover", "outage", "pooler", "postgres_versions", "start"
)
LIVENESS: Final = e2e(
    "bulk", "cancel", "http_jobs", "kill", "outage", "pause", "watching", "workers"
)
LEAVING: Final = e2e(
    "drain_requests",
    "draining",
    "first_process",
    "service_manager",
    "shutdown",
    "terminal",
    "unwritable_output",
)
STEPS: Final = (
    *e2e("bad_input", "config_lock", "effect_faults", "effect_kills", "retries", "secrets"),
    *e2e("timeouts", "unstorable_text"),
    "tests/e2e/jobs",
)
PEOPLE: Final = e2e("approvals", "budgets", "freeze", "provider_outage")
BACKGROUND: Final = "tests/e2e/background"

# --- tests that read documents or packages

DOCUMENT_TESTS: Final = (
    "tests/test_docs.py",
    "tests/test_quick_gate.py",
    "tests/test_alerts.py",
    "tests/test_changelog.py",
    "tests/test_kubernetes.py",
    "tests/cli/outbox/test_guide.py",
    "tests/cli/schedules/test_guide.py",
    "tests/cli/test_guides.py",
    "tests/mcp_server/test_guide.py",
    "tests/providers/test_registry.py",
    "tests/sql/test_schema_page.py",
    "tests/unit/domain/test_approval_rules.py",
)
PACKAGING_TESTS: Final = (
    "tests/test_alerts.py",
    "tests/test_dashboard.py",
    "tests/test_kubernetes.py",
    "tests/test_launcher.py",
    "tests/test_licences.py",
    "tests/test_packaging.py",
    "tests/test_shipping.py",
)

RULES: Final = (
    Rule(
        "figures",
        ("docs/internals/figures/",),
        ("tests/test_figures.py", "tests/bench/test_compare.py", *DOCUMENT_TESTS),
        kind=Kind.DOCUMENTS,
    ),
    Rule(
        "documents",
        ("docs/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "packaging/README.md"),
        DOCUMENT_TESTS,
        kind=Kind.DOCUMENTS,
    ),
    # --- leaf rooms
    Rule(
        "cli frame", ("cortex/cli/screen/", "cortex/cli/main.py"), ("tests/cli", *e2e("terminal"))
    ),
    Rule(
        "cli",
        ("cortex/cli/", "cortex/__main__.py"),
        ("tests/cli/test_output.py", "tests/cli/test_exit_codes.py", "tests/cli/test_imports.py"),
        ("tests/cli",),
    ),
    Rule(
        "mcp server",
        ("cortex/http/mcp/", "cortex/cli/mcp.py"),
        ("tests/mcp_server", "tests/cli/test_imports.py"),
    ),
    Rule(
        "http",
        ("cortex/http/",),
        (
            "tests/unit/http",
            "tests/http/test_requests.py",
            "tests/callbacks",
            "tests/hostile",
            "tests/mcp_server",
            *e2e("http"),
        ),
        ("tests/http",),
    ),
    Rule(
        "tui",
        ("tui/",),
        ("tests/unit/tui", "tests/tui/test_grids.py", "tests/tui_waits"),
        ("tests/tui",),
    ),
    Rule(
        "view",
        ("cortex/view/",),
        ("tests/unit/view", "tests/tui/test_grids.py"),
        ("tests/cli", "tests/http", "tests/tui"),
    ),
    Rule(
        "agent",
        ("cortex/agent/",),
        (
            "tests/unit/agent",
            "tests/agent",
            "tests/batches",
            "tests/limits",
            "tests/context",
            "tests/mcp",
            "tests/options",
            "tests/providers",
            "tests/hostile",
            *e2e("bad_answers", "bad_model", "command_kills", "isolated_agents"),
        ),
    ),
    Rule(
        "flows",
        ("cortex/flows/",),
        (
            "tests/unit/flows",
            "tests/hostile/test_flows.py",
            "tests/cli/test_flows.py",
            *e2e("built_in_jobs"),
        ),
    ),
    Rule(
        "testing",
        ("cortex/testing/",),
        (
            "tests/first",
            "tests/unit/testing",
            "tests/unit/durable",
            "tests/store/test_ledger_in_memory.py",
            "tests/test_packaging.py",
        ),
    ),
    Rule(
        "client",
        ("cortex/client/",),
        ("tests/client", "tests/callbacks", "tests/sql/test_submitter.py"),
    ),
    Rule(
        "jobs",
        ("cortex/jobs/",),
        ("tests/unit/jobs", "tests/hostile/test_webhooks.py", *e2e("built_in_jobs", "bulk")),
    ),
    Rule("http_client", ("cortex/http_client/",), ("tests/unit/http_client", "tests/unit/jobs")),
    Rule("demo", ("cortex/demo/",), ("tests/demo", "tests/unit/demo", *e2e("demo"))),
    Rule("bench", ("bench/", "cortex/bench/"), ("tests/bench", "tests/cli/bench")),
    Rule(
        "chaos of agents",
        ("chaos/agents/", "chaos/commands/agents.py"),
        ("tests/mcp/test_killed.py",),
    ),
    Rule(
        "chaos of signals",
        ("chaos/signals/", "chaos/commands/signals.py", "chaos/checkers/i38_signals.py"),
        ("tests/signals/test_storm.py",),
    ),
    Rule(
        "chaos of limits",
        ("chaos/limits/", "chaos/commands/limits.py"),
        ("tests/limits/test_storm.py",),
    ),
    Rule(
        "chaos of families",
        ("chaos/families/", "chaos/commands/families.py"),
        ("tests/children/test_families.py",),
    ),
    Rule("chaos", ("chaos/",), ("tests/chaos",)),
    Rule("packaging", ("packaging/", "LICENSE", ".dockerignore"), PACKAGING_TESTS),
    Rule("hosting", (".github/",), ("tests/test_hosting.py",)),
    # --- the core
    Rule(
        "domain",
        ("cortex/domain/",),
        ("tests/unit", "tests/options", "tests/pauses", "tests/providers"),
        kind=Kind.CORE,
    ),
    Rule(
        "runtime",
        ("cortex/runtime/", "cortex/crash_points.py"),
        (
            "tests/runtime",
            "tests/batches",
            "tests/callbacks",
            "tests/signals",
            "tests/children",
            "tests/first",
            "tests/limits",
            "tests/unit/runtime",
            *LIVENESS,
            *LEAVING,
            *PEOPLE,
            BACKGROUND,
        ),
        kind=Kind.CORE,
    ),
    Rule(
        "postgres",
        ("cortex/postgres/",),
        ("tests/store/driver", "tests/unit/store", *DATABASE),
        kind=Kind.CORE,
    ),
    Rule(
        "store",
        ("cortex/store/", "sql/"),
        (
            "tests/store",
            "tests/sql",
            "tests/callbacks",
            "tests/signals",
            "tests/hostile",
            "tests/unit/store",
            *PEOPLE,
        ),
        kind=Kind.CORE,
    ),
    Rule(
        "durable",
        ("cortex/durable/", "cortex/logger.py", "cortex/plain_structlog.py"),
        (
            "tests/unit/durable",
            "tests/unit/testing",
            "tests/callbacks",
            "tests/first",
            "tests/options",
            "tests/runtime",
            *STEPS,
        ),
        kind=Kind.CORE,
    ),
    Rule(
        "actors",
        ("cortex/actors/",),
        ("tests/unit/actors", "tests/runtime", *LEAVING),
        kind=Kind.CORE,
    ),
    Rule(
        "config",
        ("cortex/config.py", "cortex/settings_file.py"),
        (
            "tests/unit",
            "tests/hostile/test_settings.py",
            "tests/cli/test_config_show.py",
            *e2e("start", "http"),
        ),
        kind=Kind.CORE,
    ),
    # --- tests: a test file selects itself, a module of tests.support those that import it
    Rule("grids", ("tests/tui/grids/",), ("tests/tui/test_grids.py",)),
    Rule("limits", ("tests/sql/hot_path_limits.tsv",), ("tests/sql/test_hot_path.py",)),
    Rule("isolation", ("tests/support/surroundings.py",), ("tests/test_surroundings.py",)),
    Rule("tests", ("tests/",), ("tests/test_budget.py",)),
    # --- what everything stands on
    Rule(
        "foundations",
        (
            "cortex/__init__.py",
            "cortex/py.typed",
            "conftest.py",
            "pyproject.toml",
            ".ci/",
            ".gitignore",
        ),
        ("tests/test_constraints.py", "tests/test_gate_stages.py"),
        kind=Kind.EVERYTHING,
    ),
)
