"""House rules that no linter knows: sizes, names, homes of impure calls, and where SQL lives.

Each rule is a function from source to offences, tried on a sample that breaks it and then on the
whole tree. An offence reads `path:line what`.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import grimp
import pytest
from attrs import frozen

from tests.support.async_rules import offences

ROOT = Path(__file__).parent.parent
TREES = ("bench", "chaos", "cortex", "tests", "tui")
QUERIES = ROOT / "sql" / "queries"
STORE = "cortex/store/"

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
WHY_LONG = re.compile(r"^Long because \S", re.MULTILINE)
FOLDER_FILES_MAX = 60

NAMES_THAT_SAY_NOTHING = frozenset({"base", "common", "helpers", "misc", "types", "utils"})

# The name of a test is a short sentence: subject, verb, object, in the present tense.
NO_SUBJECT = re.compile(r"test_((what|who|whose|whoever|nobody|of|so)_|.*_(tells|told)(_|$))")

# The clock, randomness and ids are passed in, so that a pod can run in a simulation and a test can
# move time. These files make the real ones.
SOURCES = ("cortex/domain/clock.py", "cortex/config.py")
SUPPORT = ("tests/conftest.py", "tests/support/")
CHAOS = "chaos/"  # a fault holds for a while
VIRTUAL = ("tests/chaos/test_sim",)  # on a clock that jumps no test waits

# What may be used only under these path prefixes. A full name goes before its module's `.*`.
HOME: dict[str, tuple[str, ...]] = {
    "asyncio.sleep": (
        CHAOS,
        "cortex/bench/",
        "cortex/client/",
        "cortex/postgres/",
        *SUPPORT,
        *VIRTUAL,
    ),
    "datetime.date.today": SOURCES,
    "datetime.datetime.now": SOURCES,
    "datetime.datetime.today": SOURCES,
    "datetime.datetime.utcnow": SOURCES,
    "print": (CHAOS, "bench/", "cortex/bench/", "cortex/cli/", "cortex/demo/", *SUPPORT),
    "random.*": SOURCES,
    "random.Random": (*SOURCES, CHAOS, "tests/"),  # seeded, each of them
    "random.SystemRandom": (*SOURCES, "chaos/commands/"),  # draws a seed where none is given
    "time.sleep": (CHAOS, "cortex/postgres/embedded/", *SUPPORT),  # others can only be polled
    "time.time": SOURCES,
    "time.time_ns": SOURCES,
    "trio.sleep": (CHAOS, "bench/", "cortex/", *SUPPORT, *VIRTUAL),  # a test waits for a row
    "uuid.uuid1": SOURCES,
    "uuid.uuid4": (*SOURCES, CHAOS, *SUPPORT),
}
# Naming these is how they are passed in; only making one needs a home.
INJECTED = frozenset({"random.Random"})

# What opens a nursery or a cancel scope of trio.
SCOPES = frozenset(
    {"open_nursery", "CancelScope", "fail_after", "fail_at", "move_on_after", "move_on_at"}
)

# Functions of the store that still return rows as dicts; the list may only become shorter. The
# specifications of agents, flows and configurations are documents of JSON, and no rows: they stay.
DICT_ROWS = frozenset(
    {
        "cortex/store/configs.py spec",
        "cortex/store/dead_letters.py documents",
        "cortex/store/specs.py spec",
    }
)

# Python files that may hold SQL text, each with its reason.
SQL_HOMES: tuple[str, ...] = ("cortex/client/statements.py",)  # calls that others execute
DICT_ROW = re.compile(r"\b(?:dict|Mapping)\[str, (?:Any|object)\]|\bRecord\b")
SQL = re.compile(
    r"""\s* (?:
      SELECT\s | select\b.*\bfrom\b | select\s+[\w.]+\(
    | (?i: insert\s+into\s+\S+ .* \b(?:values|select|default)\b
         | update\s+(?:only\s+)?\S+\s+(?:(?:as\s+)?\w+\s+)?set\s
         | delete\s+from\s+\S+\s*(?:where|using|returning|;|$)
         | with\s+(?:recursive\s+)?\w+\s*(?:\([^)]*\)\s*)?as\s+(?:not\s+)?(?:materialized\s*)?\(
         | (?:create|alter|drop|truncate)\s+(?:or\s+replace\s+)?
           (?:table|index|schema|database|role|function|type|view|trigger|sequence)\s+\S )
    )""",
    re.VERBOSE | re.DOTALL,
)


@frozen
class Source:
    """One Python file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of its syntax tree: parsed and walked once for all rules."""
        nodes: list[ast.AST] = [ast.parse(self.text, filename=self.path)]
        for node in nodes:  # as ast.walk, in three quarters of its time: no rule reads contexts
            for name in node._fields:
                value = None if name == "ctx" else getattr(node, name, None)
                if isinstance(value, ast.AST):
                    nodes.append(value)
                elif isinstance(value, list):
                    nodes += [each for each in value if isinstance(each, ast.AST)]
        return nodes


def sources() -> Iterator[Source]:
    paths = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
    for path in paths:
        yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


Rule = Callable[[Source], Iterator[str]]


# --- the rules


def too_long(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX and not WHY_LONG.search(
        ast.get_docstring(ast.parse(source.text)) or ""
    ):
        wanted = "or a line `Long because …` in its docstring"
        yield f"{source.path}:1 file of {lines} lines, at most {FILE_LINES_MAX} {wanted}"
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                where = f"{source.path}:{node.lineno}"
                yield f"{where} {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def says_nothing(source: Source) -> Iterator[str]:
    for part in Path(source.path).with_suffix("").parts:
        if part in NAMES_THAT_SAY_NOTHING:
            yield f"{source.path}:1 the name {part!r} does not say what is inside"


def names_no_subject(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NO_SUBJECT.match(node.name):
            yield f"{source.path}:{node.lineno} {node.name} is not subject, verb, object"


def away_from_home(source: Source) -> Iterator[str]:
    bound = imported_names(source.nodes)
    called = {id(node.func) for node in source.nodes if isinstance(node, ast.Call)}
    for node in source.nodes:
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        name = dotted(node, bound)
        if name is None or (name in INJECTED and id(node) not in called):
            continue
        homes = HOME.get(name) or HOME.get(f"{name.rpartition('.')[0]}.*")
        if homes is not None and not source.path.startswith(homes):
            yield f"{source.path}:{node.lineno} {name} outside {', '.join(homes)}"


def holds_sql(source: Source) -> Iterator[str]:
    if source.path.startswith(("cortex/", "tui/")) and not source.path.startswith(SQL_HOMES):
        for line, text in literals(source.nodes):
            if SQL.match(text):
                yield f"{source.path}:{line} SQL in Python: {text.strip()[:40]!r}"


def yields_inside_a_scope(source: Source) -> Iterator[str]:
    """ASYNC101 of flake8-async: a generator's scope must not enclose its caller's code."""
    if not any(isinstance(node, ast.Yield) for node in source.nodes):
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_manager(node):
            for each in _inside(node):
                if isinstance(each, ast.With | ast.AsyncWith) and _opens_a_scope(each):
                    inner = (found for part in each.body for found in (part, *_inside(part)))
                    for found in inner:
                        if isinstance(found, ast.Yield):
                            yield f"{source.path}:{found.lineno} yield inside a scope or nursery"


def _is_manager(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {
        ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in function.decorator_list
    }
    return bool(names & {"asynccontextmanager", "contextmanager", "fixture"})


def _opens_a_scope(block: ast.With | ast.AsyncWith) -> bool:
    return any(
        isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func).rpartition(".")[2] in SCOPES
        for item in block.items
    )


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes below a node, except those inside functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _inside(child)


def returns_dict_rows(source: Source) -> Iterator[str]:
    for name, line in dict_row_functions(source):
        if f"{source.path} {name}" not in DICT_ROWS:
            yield f"{source.path}:{line} {name} returns rows as dicts"


# --- reading Python


def dict_row_functions(source: Source) -> Iterator[tuple[str, int]]:
    """Yield name and line of each public function of the store that returns rows as dicts."""
    if not source.path.startswith(STORE):
        return
    module = source.nodes[0]
    for node in module.body if isinstance(module, ast.Module) else ():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
            continue
        if not node.name.startswith("_") and DICT_ROW.search(ast.unparse(node.returns)):
            yield node.name, node.lineno


def imported_names(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the full name behind each imported name: `dt` → `datetime`."""
    bound = {"print": "print"}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    """Return the full name that an expression refers to, or None if it is not an imported one."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, bound)
        return owner and f"{owner}.{node.attr}"
    return None


def literals(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string that is not a docstring, pieces of f-strings too."""
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.lineno, node.value


# --- reading SQL


def query_names() -> list[str]:
    """Return `<file stem>.<name>` of each `-- name: …` line under sql/queries."""
    return [
        f"{path.stem}.{name}"
        for path in sorted(QUERIES.glob("*.sql"))
        for name in re.findall(r"^--\s*name:\s*(\w+)", path.read_text("utf-8"), re.MULTILINE)
    ]


@cache
def queries_and_uses() -> tuple[list[str], Counter[str], Counter[str]]:
    """Return the names defined, the names used in cortex and bench, and those used in the store."""
    used, used_in_store = Counter[str](), Counter[str]()
    for source in sources():
        # Most files name none: they need not be parsed for that.
        if source.path.startswith(("bench/", "cortex/")) and NAMED.search(source.text):
            names = [text for _, text in literals(source.nodes)]
            used.update(names)
            used_in_store.update(names if source.path.startswith(STORE) else [])
    return query_names(), used, used_in_store


NAMED: Final = re.compile(r"""["']\w+\.\w+["']""")
"""What may be the name of a query."""


# --- the graph of imports


def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, inside functions and for types, too."""
    graph = grimp.build_graph("bench", "chaos", "cortex", "cortex_tui", cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one cycle, the first one again as the last; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def test_a_cycle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}) == []
    assert sorted(cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == ["b", "b", "c"]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = imports()
    assert "cortex.runtime.pod" in graph
    assert graph["cortex.runtime.pod"]
    assert cycle_in(graph) == []


# --- the tree

RULES: list[Rule] = [
    too_long,
    says_nothing,
    names_no_subject,
    away_from_home,
    holds_sql,
    yields_inside_a_scope,
    returns_dict_rows,
]


METHODS_MAX = 25
"""Of a class of the terminal UI: a screen that has more is a screen, a controller and a state."""


def test_no_class_of_the_terminal_ui_has_many_methods() -> None:
    methods = {}
    for path in sorted((ROOT / "tui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
                methods[node.name] = sum(isinstance(each, kinds) for each in node.body)
    assert {name: n for name, n in methods.items() if n > METHODS_MAX} == {}


@pytest.mark.timeout(240)  # ten seconds of a processor that has nothing else to do
def test_the_tree_keeps_the_rules() -> None:
    offences = [offence for source in sources() for rule in RULES for offence in rule(source)]
    assert not offences, "\n".join(["", *offences])


def test_no_folder_holds_many_files() -> None:
    folders = Counter(
        path.parent.relative_to(ROOT)
        for tree in (*TREES, "docs", "packaging", "sql")
        for path in (ROOT / tree).rglob("*.*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    assert len(folders) > 50
    assert {each: n for each, n in folders.items() if n > FOLDER_FILES_MAX} == {}


def test_the_tree_is_walked() -> None:
    paths = {source.path for source in sources()}
    assert {"cortex/__init__.py", "tests/test_tidy.py"} <= paths


def test_every_listed_dict_row_function_exists() -> None:
    found = {f"{each.path} {name}" for each in sources() for name, _ in dict_row_functions(each)}
    assert not DICT_ROWS - found, "typed by now: take them off the list"


def test_every_query_has_one_definition() -> None:
    assert [name for name, count in Counter(query_names()).items() if count > 1] == []


def test_every_query_is_used() -> None:
    defined, used, _ = queries_and_uses()
    unused = sorted(set(defined) - set(used))
    assert not unused, "\n".join(["", *unused])


def test_every_query_asked_for_exists() -> None:
    defined, _, used = queries_and_uses()
    aggregates = {path.stem for path in QUERIES.glob("*.sql")}
    asked = {name for name in used if re.fullmatch(r"\w+\.\w+", name)}
    asked = {name for name in asked if name.partition(".")[0] in aggregates}
    missing = sorted(asked - set(defined))
    assert not missing, "\n".join(["", *missing])


# --- the rules themselves, so that none of them passes by finding nothing


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "from time import time as now\nclock = now",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "from datetime import date\ndate.today()",
        "import random\nrandom.shuffle([])",
        "from random import Random\nRandom(7)",
        "from uuid import uuid4\nfield(factory=uuid4)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
        "import time\ntime.sleep(1)",
        "print('here')",
    ],
)
def test_impure_use_is_found(text: str) -> None:
    assert list(away_from_home(Source("cortex/durable/context.py", text)))


@pytest.mark.parametrize(
    "path, text",
    [
        ("cortex/domain/clock.py", "import time\ntime.time()"),
        ("cortex/cli/jobs/__init__.py", "print('here')"),
        ("cortex/durable/context.py", "import time\ntime.monotonic()"),
        ("cortex/durable/context.py", "import random\ndef jitter(rng: random.Random): ..."),
        ("cortex/durable/context.py", "ctx.sleep(1)\nself.time.time()"),
        ("cortex/runtime/liveness/sweeper.py", "import trio\ntrio.sleep(1)"),
        ("tests/unit/test_retry.py", "import random\nrandom.Random(7)"),
        ("tests/support/eventually.py", "import trio\ntrio.sleep(0.01)"),
    ],
)
def test_use_at_home_is_allowed(path: str, text: str) -> None:
    assert list(away_from_home(Source(path, text))) == []


def test_a_sleeping_test_is_found() -> None:
    source = Source("tests/unit/test_retry.py", "from trio import sleep\nsleep(1)")
    (offence,) = away_from_home(source)
    assert offence.startswith("tests/unit/test_retry.py:2 trio.sleep outside ")


@pytest.mark.parametrize(
    "name",
    ["what_expires_is_shown", "who_leaves_is_named", "nobody_waits", "page_tells_why", "of_two"],
)
def test_test_name_without_a_subject_is_found(name: str) -> None:
    source = Source("tests/unit/test_retry.py", f"\ndef test_{name}(): ...")
    (offence,) = names_no_subject(source)
    assert offence.startswith(f"tests/unit/test_retry.py:2 test_{name} ")
    text = f"def {name}(): ...\ndef test_whole_page_is_shown(): ..."
    assert list(names_no_subject(Source("tests/unit/test_retry.py", text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select id from job",
        "select pg_advisory_lock($1)",
        "\n  INSERT INTO job (id) VALUES ($1)",
        "update job set status = 'FAILED'",
        "UPDATE cortex.job_record AS j SET status = $1",
        "delete from job where id = $1",
        "WITH due AS (SELECT 1) SELECT 2",
        "CREATE DATABASE cortex",
    ],
)
def test_sql_in_python_is_found(text: str) -> None:
    assert list(holds_sql(Source("cortex/store/jobs.py", f"q = {text!r}")))
    assert list(holds_sql(Source("cortex/store/jobs.py", f"q = f{text + '{x}'!r}")))


@pytest.mark.parametrize(
    "returns", ["dict[str, Any]", "list[dict[str, Any]]", "Record | None", "Mapping[str, Any]"]
)
def test_a_dict_row_is_found(returns: str) -> None:
    text = f"async def show(db: Database) -> {returns}: ..."
    assert list(returns_dict_rows(Source("cortex/store/jobs.py", text)))
    assert list(returns_dict_rows(Source("cortex/store/jobs.py", f"def _{text[10:]}"))) == []
    assert list(returns_dict_rows(Source("cortex/view/jobs.py", text))) == []


def test_maps_of_rows_are_allowed() -> None:
    for returns in ("dict[UUID, Watched]", "dict[str, int]", "list[JobRow]"):
        text = f"async def show(db: Database) -> {returns}: ..."
        assert list(returns_dict_rows(Source("cortex/store/jobs.py", text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "DELETE",
        "Select a job with its id",
        "update the schema with `cortex migrate`",
        "with its last checkpoint",
        "delete from here on",
        "create an agent first",
    ],
)
def test_prose_is_not_sql(text: str) -> None:
    assert list(holds_sql(Source("cortex/cli/jobs/__init__.py", f"hint = {text!r}"))) == []


def test_long_functions_and_files_are_found() -> None:
    body = "    pass\n" * FUNCTION_LINES_MAX
    assert list(too_long(Source("cortex/runtime/pod.py", f"async def up():\n{body}")))
    assert list(too_long(Source("cortex/runtime/pod.py", f"def up():\n{body[9:]}"))) == []
    long = "x = 1\n" * (FILE_LINES_MAX + 1)
    assert list(too_long(Source("cortex/runtime/pod.py", long)))
    reason = '"""A pod.\n\nLong because its phases are read together.\n"""\n'
    assert list(too_long(Source("cortex/runtime/pod.py", reason + long))) == []


def test_empty_names_are_found() -> None:
    assert list(says_nothing(Source("cortex/store/utils.py", "")))
    assert list(says_nothing(Source("cortex/common/ids.py", "")))
    assert list(says_nothing(Source("cortex/store/tasks.py", ""))) == []


def test_a_yield_inside_a_scope_is_found() -> None:
    text = "async def numbers():\n    async with trio.open_nursery():\n        yield 1\n"
    (offence,) = yields_inside_a_scope(Source("cortex/durable/context.py", text))
    assert offence.startswith("cortex/durable/context.py:3 yield inside")
    for allowed in (f"@contextlib.asynccontextmanager\n{text}", text.replace("yield 1", "say(1)")):
        assert list(yields_inside_a_scope(Source("cortex/durable/context.py", allowed))) == []


def test_an_await_that_a_cancellation_would_cut_is_found() -> None:
    text = "import trio\nasync def f():\n    try:\n        ...\n    finally:\n        await g()"
    (offence,) = offences("cortex/a.py", text)
    assert offence.startswith("cortex/a.py:6:9: ASYNC102")
    assert list(offences("cortex/a.py", f"{text}  # noqa: ASYNC102 -- bounded")) == []
    assert list(offences("cortex/a.py", f"{text}  # noqa: ASYNC103")) != []
