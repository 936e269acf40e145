"""`cortex run`: one job to its end in this terminal, and nothing else of the database."""

import re
from pathlib import Path

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life

APP = """
import logging

from cortex import Context, job


@job(final=(ZeroDivisionError,))
async def count_words(ctx: Context, text: str) -> int:
    words = await ctx.step("split", text.split)
    print("counting", text)
    logging.getLogger("shop").info("counted")
    ctx.log("noted")
    return 6 // (len(words) - 1)


@job("face2")
async def with_a_name_like_an_id(ctx: Context) -> None: ...


@job
async def pay(ctx: Context, euros: int) -> str:
    await ctx.approve("pay", detail={"euros": euros})
    return f"paid {euros}"
"""

RESOURCE = """

from collections.abc import AsyncIterator

from cortex import resource


class Bank: ...


@resource
async def bank() -> AsyncIterator[Bank]:
    raise OSError("no bank")
    yield Bank()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(APP)
    return path


@pytest.mark.usefixtures("pods")
def test_a_job_runs_to_its_end_and_no_other(app: Path, cortex: Cortex, life: Life) -> None:
    life.type("count_words")
    other = life.job("count_words", payload='{"text": "of another"}')
    ended = cortex("run", "shop.py", "count_words", "text=a b \x1b[2Jc")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "3"), ended.err
    assert re.search(r"^ +1 split +[^ ]+ +\d+ms$", ended.out, re.MULTILINE), ended.out
    named, printed, logged, noted = ended.err.splitlines()
    shown = cortex("show", named.removeprefix("job "), "--json").document
    assert shown["job"]["result"] == 3
    assert printed == "│ counting a b ⟦U+001B⟧[2Jc"
    assert re.search(r"info +\] counted .*\[shop\]", logged), logged
    assert re.search(r"info +\] noted ", noted), noted
    assert cortex("jobs", "show", str(other), "--json").document["job"]["status"] == "PENDING"
    document = cortex("run", "shop.py", "count_words", "text=a b", "--json").document
    assert document["job"]["result"] == 6
    app.with_name("other.py").write_text("import cortex\n\n\n@cortex.job\nasync def b(_): ...\n")
    unfit = cortex("run", "other.py", str(other))
    reason = f"error: other.py has no job 'count_words', which job …{other.hex[-6:]} is\n"
    assert (unfit.code, unfit.err) == (2, f"{reason}hint: name the application that has it\n")
    failed = cortex("run", "shop.py", "count_words", "--payload", '{"text": "a"}')
    assert failed.code == 6, failed.err
    assert "ZeroDivisionError" in failed.out
    assert "cortex jobs show " in failed.err
    closed = app.with_name("closed.py")
    closed.write_text(APP + RESOURCE)
    refused = cortex("run", "closed.py", "count_words", "text=a b")
    assert refused.code == 1
    reason = rf"error: resource bank \({closed}:\d+\) failed to open: OSError: no bank\n"
    assert re.fullmatch(reason, refused.err), refused.err


@pytest.mark.usefixtures("app", "pods")
def test_a_person_decides_in_the_terminal_and_goes_on_after_ctrl_c(
    cortex: Cortex, life: Life
) -> None:
    first = cortex.on_terminal("run", "shop.py", "pay", "euros=3")
    first.read_until(lambda text: "approve? y: yes, n: no, enter: later" in text, what="question")
    first.type("\n")
    first.read_until(lambda text: "waits for approval" in text.split("later")[-1], what="a way")
    first.interrupt()
    assert first.end() == 130
    found = re.search(r"cortex run shop\.py (\w+)", first.text.replace("\r\n", ""))
    assert found, first.text
    assert life.sql("SELECT FROM cortex_worker.task WHERE state = 'LOCKED'") == []
    second = cortex.on_terminal("run", "shop.py", found[1])
    second.read_until(lambda text: "approve? y" in text, what="the question again")
    second.type("y\n")
    assert second.end() == 0
    assert "paid 3" in second.text
    again = cortex("run", "shop.py", found[1])
    assert (again.code, again.err) == (
        2,
        f"error: job …{found[1]} is COMPLETED\n" + again.err.split("\n", 1)[1],
    )
    assert f"cortex jobs show {found[1]}" in again.err


def test_a_job_type_in_place_of_the_app_leads_to_its_pods(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("run", "digest", "n=3")
    assert ended.code == 2
    assert ended.err.startswith("error: app 'digest' is not found from ")
    assert ended.err.endswith("to submit it to pods: cortex jobs submit --wait digest n=3\n")


@pytest.mark.parametrize(
    "words, message",
    [
        ("shop.py", "error: shop.py has 3 jobs\nhint: name one: count_words, face2, pay\n"),
        ("shop.py count_word text=a", "error: unknown job type 'count_word'\nhint: did you mean"),
        (
            "shop.py digest",
            "error: unknown job type 'digest'\nhint: yours are count_words, face2, pay\n",
        ),
        ("shop.py face2 n=1", "error: payload of 'face2' has an unknown key 'n'"),
        ("shop.py pay euros=many", "error: payload.euros"),
        ("shop.py pay euro=3", "error: payload of 'pay' "),
        ("none.py", "error: app 'none.py' does not exist\nhint: give a module"),
    ],
)
@pytest.mark.usefixtures("app")
def test_wrong_calls_name_the_place(cortex_nowhere: Cortex, words: str, message: str) -> None:
    ended = cortex_nowhere("run", *words.split())
    assert ended.code == 2
    assert ended.err.startswith(message)
    assert not (cortex_nowhere.folder / "data").exists()
