"""The report of a run: a self-contained page, and lines for programs."""

import json
import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest

from chaos.checkers import ALL
from chaos.checkers.verdict import Result
from chaos.plan import Options, make_plan
from chaos.report.chart import chart_of
from chaos.report.keep import keep
from chaos.report.page import page
from chaos.report.scorecard import scorecard
from chaos.report.stories import stories
from chaos.run import Outcome
from tests.support.evidence import Run, uuid
from tests.support.healthy_run import PAUSES, healthy_run

VOID = {"meta", "rect", "line", "br"}


class Nesting(HTMLParser):
    """Fails where an element ends that is not the innermost one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def outcome_of(run: Run, *, stuck: str | None = None) -> Outcome:
    evidence = run.evidence()
    return Outcome(
        plan=make_plan(Options(seed=7, pods=3, duration_s=5)),
        evidence=evidence,
        verdicts=tuple(check(evidence) for check in ALL),
        stuck=stuck,
        took_s=61.0,
    )


@pytest.fixture
def broken() -> Outcome:
    """One job was done twice, and its key is not to be believed."""
    run = healthy_run()
    run.apply("killed", "1:reconcilable", 11.1)
    run.jobs["plain"]["error_message"] = "</script><script>alert(1)</script>"
    return outcome_of(run)


def test_scorecard_shows_the_figures_of_a_run() -> None:
    output = scorecard(outcome_of(healthy_run()))
    figures = dict(re.findall(r"^ {2,4}(\S[^\n]*?) {2,}(\S.*)$", output, re.MULTILINE))
    assert figures["jobs"].startswith("22  (COMPLETED 20, FAILED 1, CANCELLED 1)")
    assert figures["quiet takeovers"].startswith("1  (p50 0.70 s")
    assert figures["while more was broken"].startswith("5  (p50 ")
    assert figures["model calls"] == f"{6 + 2 * len(PAUSES) + 1}, paid twice 0"
    assert figures["messages"] == "4, sent again 1"
    assert figures["instants of schedules"] == "1  (skipped 1)"
    assert figures["drains"].startswith("2  (p50 1.00 s")
    assert figures["doubled"] == "0, and 1 of unsafe tools"
    assert output.endswith("no rule was broken\n")


def test_report_page_needs_no_resources_or_scripts(broken: Outcome) -> None:
    html = page(broken)
    assert not re.search(r"""(?:src|href)=|url\(|@import|<script|<link|https?://""", html)
    assert "prefers-color-scheme: dark" in html


def test_the_page_is_well_formed(broken: Outcome) -> None:
    check = Nesting()
    check.feed(page(broken))
    assert check.open == []


def test_report_page_shows_the_history_of_each_broken_job(broken: Outcome) -> None:
    html = page(broken)
    assert "broken: I3" in html
    assert "<summary><code>killed</code> COMPLETED, 2 attempts" in html
    assert "applied reconcilable:killed:1 for attempt 2" in html
    assert "<summary><code>plain</code>" not in html


def test_a_good_run_has_no_such_histories() -> None:
    html = page(outcome_of(healthy_run()))
    assert "Jobs that broke a rule" not in html
    assert "no rule was broken" in html


def test_a_story_has_everything_in_its_order() -> None:
    (story,) = stories(healthy_run().evidence(), [uuid("decided"), uuid("nobody")])
    output = [f"{line.who}: {line.what}" for line in story.lines]
    assert [line.at_s for line in story.lines] == sorted(line.at_s for line in story.lines)
    for expected in (
        "client-1: submit ok",
        "p2.1: claimed it, attempt 1",
        "history: RUNNING → WAITING_FOR_APPROVAL",
        "approver-ann: decide ok",
        "approver-bob: decide fail",
        "ledger: applied idempotent:decided:1",
        "step: step 2, 1:idempotent",
    ):
        assert any(line.startswith(expected) for line in output), expected


def test_attempts_in_one_lane_do_not_overlap() -> None:
    chart = chart_of(healthy_run().evidence())
    assert len(chart.attempts) == len(healthy_run().claims)
    for one, other in combinations(chart.attempts, 2):
        if one.y == other.y:
            assert one.x + one.width <= other.x + 2 or other.x + other.width <= one.x + 2


def test_takeover_links_lead_from_the_lost_to_the_next_attempt() -> None:
    chart = chart_of(healthy_run().evidence())
    kinds = [link.kind for link in chart.links]
    assert (kinds.count("died"), kinds.count("swept"), kinds.count("handed")) == (8, 1, 1)
    assert all(link.x1 <= link.x2 for link in chart.links)


def test_a_run_without_anything_is_drawn_too() -> None:
    assert chart_of(Run().evidence()).attempts == ()
    assert page(outcome_of(Run(), stuck="nothing came up"))


def test_kept_files_are_readable_by_programs(broken: Outcome, tmp_path: Path) -> None:
    folder, target = tmp_path / "run", tmp_path / "kept"
    folder.mkdir()
    (folder / "history.jsonl").write_text('{"at_s": 1}\n')
    keep(broken, folder, target)
    verdicts = [json.loads(line) for line in (target / "verdicts.jsonl").read_text().splitlines()]
    assert [v["invariant"] for v in verdicts if v["result"] == Result.INVALID] == ["I3"]
    assert (target / "history.jsonl").read_text() == '{"at_s": 1}\n'
    assert (target / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert json.loads((target / "options.json").read_text())["seed"] == 7
