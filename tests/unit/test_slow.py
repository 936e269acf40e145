"""Slow tests: those that are listed are there, and draws in a row make all of them."""

import re
from pathlib import Path

from tests.support.slow import function, is_drawn, listed, names

ROOT = Path(__file__).parent.parent.parent


def test_each_listed_test_is_there() -> None:
    for name in names():
        path, called, *_ = name.split("::")
        assert re.search(
            rf"^(async )?(def |class )?{called}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE
        ), name


def test_five_draws_in_a_row_make_each_case_once() -> None:
    cases = [f"tests/x.py::test_y[{n}]" for n in range(100)]
    drawn = [each for number in range(7, 12) for each in cases if is_drawn(each, number, 5)]
    assert sorted(drawn) == sorted(cases)
    assert all(is_drawn(each, 3, 1) for each in cases)


def test_the_list_is_of_functions_one_case_of_which_took_too_long(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    case = '<testcase classname="tests.unit.test_x" name="{}" time="{}"/>'
    times = {"test_a[1]": 0.1, "test_a[2]": 9.0, "test_b": 0.2, "test_c[x::y[0]]": 4.0}
    told = "".join(case.format(name, took_s) for name, took_s in times.items())
    junit.write_text(f"<testsuites><testsuite>{told}</testsuite></testsuites>")
    assert listed(junit) == ["tests/unit/test_x.py::test_a", "tests/unit/test_x.py::test_c"]
    assert function("tests/unit/test_x.py::test_a[2]") == listed(junit)[0]
