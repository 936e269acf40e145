"""README and docs say what the code does, and their commands work as a newcomer types them."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import pytest
from attrs import evolve

import cortex
from bench.command import bench
from cortex.cli.main import cli
from cortex.cli.options import Group
from cortex.cli.synonyms import expanded
from tests.support import man_pages, python_reference
from tests.support.eventually import WITHIN_S
from tests.support.manual.blocks import MANUAL, blocks
from tests.support.manual.scenes import SCENES, By, Scene
from tests.support.manual.script import fits, play, run_script, runs, stage_of
from tests.support.manual.world import environment, quick_cortex
from tests.support.pods import Pods
from tests.support.pty_screen import PtyScreen
from tests.support.reference_pages import pages
from tests.support.servers.postgres import SharedPostgres, make_home, remove_servers

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PICTURES = ROOT / "packaging" / "pictures"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
README_LINES_MAX = 250


def rows(title: str) -> list[list[str]]:
    """The cells of the table in one section of the README, without its head."""
    section = README.read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("path, text", [pytest.param(*each, id=each[0].name) for each in pages()])
def test_reference_pages_are_those_of_the_code(path: Path, text: str) -> None:
    assert path.read_text("utf-8") == text, "run: python -m tests.support.generate reference"


def test_man_pages_and_completion_scripts_are_those_of_the_code() -> None:
    wanted = dict(man_pages.files())
    folders = {path.parent for path in wanted}
    found = {path: path.read_text("utf-8") for folder in folders for path in folder.iterdir()}
    assert found == wanted, "run: python -m tests.support.generate man"


def test_the_readme_stays_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= README_LINES_MAX


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in headings}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if link.startswith("https:"):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


THREATS = ROOT / "docs" / "threat-model.md"
PROMISES = "| promise | proved by |\n|---|---|\n"


def promises(page: str) -> list[tuple[str, str]]:
    """The rows of the tables of promises in the section on borders: a promise and its proof."""
    borders = page.partition("\n## Borders\n")[2].partition("\n## ")[0]
    for section in borders.split("\n### ")[1:]:
        assert PROMISES in section, section.partition("\n")[0]
    lines = [
        line
        for table in borders.split(PROMISES)[1:]
        for line in table.partition("\n\n")[0].splitlines()
    ]
    return [(cells[1].strip(), cells[2].strip()) for cells in (line.split("|") for line in lines)]


def unproved(page: str, folder: Path) -> list[str]:
    """The promises without a test, and the tests that do not exist."""
    faults = []
    for promise, proof in promises(page):
        tests = re.findall(r"\[(test_\w+)\]\(([^)]+\.py)\)", proof)
        if not tests:
            faults.append(f"without a test: {promise}")
        for name, link in tests:
            path = (folder / link).resolve()
            if not path.is_relative_to(ROOT / "tests") or not path.is_file():
                faults.append(f"no test file: {link}")
            elif f"def {name}(" not in path.read_text("utf-8"):
                faults.append(f"no test {name} in {link}")
    return faults


def test_every_promise_of_the_threat_model_names_its_tests() -> None:
    assert unproved(THREATS.read_text("utf-8"), THREATS.parent) == []


@pytest.mark.parametrize(
    "proof, fault",
    [
        pytest.param("", "without a test", id="no proof"),
        pytest.param("[a page](guarantees.md)", "without a test", id="a page is no proof"),
        pytest.param("[test_gone](../tests/test_docs.py)", "no test test_gone", id="renamed"),
        pytest.param("[test_a](../tests/test_gone.py)", "no test file", id="no file"),
    ],
)
def test_a_promise_without_an_existing_test_is_found(proof: str, fault: str) -> None:
    page = THREATS.read_text("utf-8")
    page = page.replace(PROMISES, f"{PROMISES}| It holds. | {proof} |\n", 1)
    assert [each.startswith(fault) for each in unproved(page, THREATS.parent)] == [True]


def test_index_of_guides_has_all_of_them() -> None:
    guides = {each.name for each in ROOT.glob("docs/guides/*.md")}
    index = (ROOT / "docs/guides/how-do-i.md").read_text("utf-8")
    linked = {Path(each).name for each in re.findall(r"\]\(([\w./-]+\.md)", index)}
    assert guides <= {*linked, "how-do-i.md"}


def typed(page: Path) -> list[list[str]]:
    """The `cortex` commands that a page shows in its indented blocks or in its text, as words."""
    text = page.read_text("utf-8").replace("uv run cortex", "cortex")
    lines = re.findall(r"^    (?:\w+=\$\()?(cortex [^#\n]*)", text, re.MULTILINE)
    lines = [line.rstrip(" &").removesuffix(")") for line in lines]
    inline = re.findall(r"`(cortex [a-z][^`\n]*)`", text)
    return [shlex.split(line) for line in lines + inline]


def test_commands_and_options_exist() -> None:
    # What a fragment of the changelog calls removed is gone.
    pages = [page for page in PAGES if not page.name.endswith(".removed.md")]
    for page in (each for each in pages if each.parent.name != "reference"):
        for words in typed(page):
            where = f"{page}: {shlex.join(words)}"
            command: click.Command = cli
            rest = expanded(words[1:], cli.list_commands(click.Context(cli)))
            while isinstance(command, click.Group):
                if isinstance(command, Group) and (not rest or rest[0].startswith("-")):
                    rest = [command.default or "", *rest]
                found = command.get_command(click.Context(command), rest.pop(0))
                assert found is not None, where
                command = found
            parameters = command.get_params(click.Context(command))
            known = {name for each in parameters for name in each.opts}
            assert {word for word in rest if word.startswith("-")} <= known, where


def test_every_bench_has_a_figure() -> None:
    text = (ROOT / "docs" / "internals" / "hot-path.md").read_text("utf-8")
    named = set(re.findall(r"(?:cortex|python -m) bench (\w+)", text))
    assert named == set(bench.list_commands(click.Context(bench)))


def commands_below(words: str) -> list[str]:
    """The indented commands after the line that holds these words, without their comments."""
    text = README.read_text("utf-8").split(words)[1]
    block = re.search(r"(?:^    \S.*\n)+", text, re.MULTILINE)
    assert block, f"no commands after {words!r}"
    return [line.split("  #")[0].strip() for line in block[0].splitlines()]


def shell(command: str, folder: Path, **environment: str) -> str:
    """Run a command as typed; return its output."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        # What belongs to this run and not to a newcomer.
        if name not in {"VIRTUAL_ENV", "PYTHONPATH"}
        and not name.startswith(("CORTEX_", "UV_PROJECT", "PYTEST_", "ANTHROPIC_"))
    }
    ended = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}"
    return ended.stdout


def test_pictures_are_used_and_load_nothing_from_the_network() -> None:
    shown = [
        each
        for page in PAGES
        for each in re.findall(r'<img src="([^"]+)"', page.read_text("utf-8"))
    ]
    assert {Path(each).name for each in shown} == {path.name for path in PICTURES.iterdir()}
    for path in PICTURES.glob("*.svg"):
        svg = path.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|url\((?!#)|@import|@font-face|<script", svg), path


@pytest.mark.readme
@pytest.mark.timeout(400)
def test_first_command_works_on_a_fresh_clone(server_home: Path) -> None:
    demo, test = commands_below("from its last step.")
    assert test == "uv run pytest"
    clone, data = server_home / "clone", server_home / "data"
    shell(f"git clone -q {ROOT} clone", server_home)
    made = subprocess.run(
        [Path(sys.executable).resolve(), "-m", "venv", server_home / "env"], check=False
    )
    if made.returncode != 0:  # Debian's Python without python3-venv: the uv of this run will do
        demo = demo.split(" && ")[1]
    path = f"{server_home / 'env' / 'bin'}:{os.environ['PATH']}"
    output = shell(demo, clone, CORTEX_DATA=str(data), PATH=path, NO_COLOR="1")
    (shown,) = [each.text for each in blocks("README.md") if each.text.startswith("model  ")]
    assert fits(shown, output), output
    report = Path(re.search(r"^report +(.+)$", output, re.MULTILINE)[1])  # type: ignore[index]
    assert "README.md" in report.read_text("utf-8") or "sql/" in report.read_text("utf-8")


@pytest.mark.readme
@pytest.mark.timeout(200)
def test_own_job_of_the_readme_runs(server_home: Path, tmp_path: Path) -> None:
    text = README.read_text("utf-8")
    code = re.search(r"```python\n# words\.py\n(.*?)```", text, re.DOTALL)
    assert code
    (tmp_path / "words.py").write_text(code[1], "utf-8")
    (tmp_path / "README.md").write_text("three short words", "utf-8")
    (run,) = commands_below("read_text()).split())\n```")
    environment = {
        "CORTEX_DATA": str(server_home / "data"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    assert "README.md: 3" in shell(run, tmp_path, **environment)


@pytest.mark.readme
@pytest.mark.timeout(200)
def test_tour_of_the_readme(server_home: Path, tmp_path: Path) -> None:
    """Its two commands on two terminals, and the keys of its table."""
    here, there = commands_below("## Approve in the terminal")
    keys = [row[0] for row in rows("Approve in the terminal")]
    assert keys[:4] == ["nothing yet", "A", "a", "y"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CORTEX_DATA": str(server_home / "data"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }

    def terminal(command: str) -> PtyScreen:
        typed = command.removeprefix("uv run ").split()
        return PtyScreen(typed, folder=tmp_path, env=environment)

    with terminal(here) as first:
        first.until(lambda text: "waits    for you" in text, what="the question")
        with terminal(there) as second:
            second.until(lambda text: "◆ 1 approval" in text, what="the pulse")
            second.type("A")
            second.until(lambda text: "customers@example.org" in text, what="the request")
            second.press_until("a", lambda text: "y yes" in text, what="the question")
            second.press_until("y", lambda text: "✓ approved" in text, what="what was done")
            first.until(lambda text: "decided  send_mail approved by" in text, what="the receipt")
            assert first.end() == 0
            second.type("q")
            assert second.end() == 0


@pytest.fixture(scope="module")
def world(shared_postgres: SharedPostgres, run_dir: Path) -> Iterator[dict[str, str]]:
    """The environment of a reader's shell; its database has a pod."""
    folder = make_home(run_dir)
    dsn = shared_postgres.lend()
    pods = Pods(dsn, folder)
    pods.start("--app", "tests.support.apps.manual_app")
    with quick_cortex(folder) as programs:
        yield environment(programs, dsn)
    pods.close()
    shared_postgres.give_back(dsn)
    remove_servers(folder)


def test_each_block_of_the_manual_is_run_or_names_its_test() -> None:
    """An entry that fits no block, a word that no page has and a test that is gone are stale."""
    for page in MANUAL:
        scene = SCENES.get(page, Scene())
        found = blocks(page)
        for block in found:
            stage = stage_of(block)
            if isinstance(stage, By):
                path, _, name = stage.test.partition("::")
                assert re.search(
                    rf"^(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE
                ), stage
        for start in scene.blocks:
            assert sum(each.text.startswith(start) for each in found) == 1, (page, start)
        for word in scene.words:
            assert any(word in each.text for each in found), (page, word)
    assert set(SCENES) <= set(MANUAL)


def block_of(page: str, start: str) -> str:
    """The text of a page's one block that starts so."""
    (text,) = [each.text for each in blocks(page) if each.text.startswith(start)]
    return text


def test_the_rooms_of_the_architecture_are_all_there() -> None:
    text = block_of("docs/internals/architecture.md", "cortex/domain")
    rooms = set(re.findall(r"\bcortex/\w+", text))
    found = {f"cortex/{each.parent.name}" for each in (ROOT / "cortex").glob("*/__init__.py")}
    assert rooms == found
    for line in text.splitlines():
        room, _, rest = line.partition(" ")
        for folder in re.findall(r"(?<!/)\b(\w+)/(?!\w)", rest) if room else ():
            assert (ROOT / room / folder).is_dir(), line


def test_decisions_are_listed_and_have_all_their_sections() -> None:
    """Each is a page of at most 60 lines; the index has them in the order of their numbers."""
    folder = ROOT / "docs" / "adr"
    pages = sorted(folder.glob("0*.md"))
    listed = re.findall(
        r"^\| \[(\d+)\]\(([^)]+)\) \|", (folder / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed == [(str(number), page.name) for number, page in enumerate(pages, 1)]
    for number, page in enumerate(pages, 1):
        text = page.read_text("utf-8")
        assert text.startswith(f"# {number}. "), page.name
        assert "\n**Status:** " in text, page.name
        titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert titles == ["Context", "Decision", "Consequences", "Compared with"], page.name
        assert len(text.splitlines()) <= 60, page.name


@pytest.mark.parametrize(
    "page, start",
    [("CONTRIBUTING.md", "git clone …"), ("docs/internals/testing.md", "uv run pytest")],
)
def test_commands_for_developers_name_existing_files(page: str, start: str) -> None:
    words = re.sub("#.*", "", block_of(page, start)).split()
    for word in words:
        assert "/" not in word or (ROOT / word).exists(), word
    assert any(os.access(ROOT / word, os.X_OK) for word in words if word.startswith(".ci/"))


def test_each_guarantee_names_tests_that_exist() -> None:
    _, *sections = (ROOT / "docs" / "guarantees.md").read_text("utf-8").split("\n## ")
    for section in sections:
        title = section.splitlines()[0]
        found = re.findall(r"^- `(tests/[\w/]+\.py)::(\w+)`$", section, re.MULTILINE)
        assert found or title == "What is not promised", title
        for path, name in found:
            source = (ROOT / path).read_text("utf-8")
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), (path, name)


def test_the_scorecard_has_every_rule() -> None:
    sources = [each.read_text("utf-8") for each in (ROOT / "chaos" / "checkers").glob("i*.py")]
    rules = dict(re.findall(r'Findings\(\s*"(I\d+)",\s*"([^"]+)"', "".join(sources)))
    assert len(rules) == len(sources)
    line = re.compile(r"^  (I\d+) +(?:ok|\?) +\d+  (.+)$", re.MULTILINE)
    assert dict(line.findall(block_of("docs/internals/scorecard.md", "seed 4:"))) == rules
    example = dict(line.findall(block_of("docs/internals/chaos.md", "seed 4:")))
    assert example.items() <= rules.items()
    assert example


@pytest.mark.readme
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page for page in MANUAL if runs(page, release=False)])
def test_blocks_of_the_manual_work(page: str, world: dict[str, str], server_home: Path) -> None:
    play(page, folder=server_home, environment=world, release=False)


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in MANUAL if runs(page, release=True)])
def test_long_blocks_of_the_manual_work(
    page: str, world: dict[str, str], server_home: Path
) -> None:
    play(page, folder=server_home, environment=world, release=True)


@pytest.mark.parametrize(
    "examples, message",
    [
        ((), "no example uses handler, Message"),
        (("orders", "office"), None),
        (("script",), "no example uses handler, Message"),
    ],
)
def test_reference_of_python_asks_for_an_example_of_each_name(
    examples: tuple[str, ...], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = [
        evolve(each, examples=examples) if "Message" in each.names else each
        for each in python_reference.SECTIONS
    ]
    monkeypatch.setattr(python_reference, "SECTIONS", sections)
    with pytest.raises(LookupError, match=message) if message else nullcontext():
        python_reference.page("")


def test_reference_of_python_asks_for_a_section_of_each_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cortex, "__all__", [*cortex.__all__, "Novelty"])
    with pytest.raises(LookupError, match=r"exports \['Novelty'\]"):
        python_reference.page("")


def test_a_script_without_end_fails_with_what_it_has_written(tmp_path: Path) -> None:
    script = "echo begun; (trap '' TERM; exec sleep 60) & sleep 60"
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"page\.md: no end within 0\.2 s\nbegun\n"):
        run_script(script, folder=tmp_path, environment=os.environ, within_s=0.2, what="page.md")
    assert time.monotonic() - began < WITHIN_S


@pytest.mark.parametrize(
    "shown, output, does_fit",
    [
        ("a\nc", "a\nb\nc", True),
        ("a\n…\nid 7", "a\nid 93", True),
        ("took 5s  ok", "took 61.2ms  ok", True),
        ("a\nb", "b\na", False),
        ("refund paid", "refund denied", False),
    ],
)
def test_shown_output_is_compared_but_for_figures(shown: str, output: str, does_fit: bool) -> None:
    assert fits(shown, output) is does_fit
