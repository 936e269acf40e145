"""The alert rules use names and labels of metrics that pods export."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cortex.cli.main import cli
from cortex.runtime.metrics.metrics_catalogue import METRICS, Metric
from tests.support.promtool import promtool
from tests.support.reference_pages import _metrics

RULES = Path(__file__).parent.parent / "packaging" / "prometheus" / "alerts.yaml"
RUNBOOKS = RULES.parent.parent.parent / "docs" / "runbooks.md"
RULES_TEST = RULES.with_name("alerts_test.yaml")
KNOWN = {metric.name: metric for metric in METRICS}
SUFFIXES = re.compile(r"_(bucket|count|sum)$")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return list(group["rules"])


def commands_in(text: str) -> list[list[str]]:
    """Commands in backquotes, as words up to their first option or filter."""
    found = re.findall(r"`cortex ([^`]+)`", text)
    return [re.split(r" -| \w+:", each)[0].split() for each in found]


def metric_of(name: str) -> Metric | None:
    return KNOWN.get(name) or KNOWN.get(SUFFIXES.sub("", name))


def test_each_important_condition_has_an_alert() -> None:
    output = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    assert output == {
        "CortexErrorRate": "warning",
        "CortexBreakerOpen": "critical",
        "CortexDeadLettersGrow": "warning",
        "CortexDeadLetterRate": "warning",
        "CortexRecoveryBlocked": "critical",
        "CortexRunnerLate": "warning",
        "CortexOutboxLate": "warning",
        "CortexOutboxFailures": "warning",
        "CortexWorkStranded": "critical",
        "CortexScheduleMissed": "warning",
        "CortexPauseForgotten": "warning",
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_rule_names_existing_metrics_and_a_runbook(rule: dict[str, Any]) -> None:
    names = set(re.findall(r"\bcortex_\w+", rule["expr"] + rule["annotations"]["description"]))
    assert names
    assert [name for name in names if metric_of(name) is None] == []
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_sends_people_to_commands_that_exist(rule: dict[str, Any]) -> None:
    for words in commands_in(rule["annotations"]["description"]):
        command: click.Command | None = cli
        for word in words:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None, words
        assert not isinstance(command, click.Group), words


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_asks_as_the_metric_is_to_be_asked(rule: dict[str, Any]) -> None:
    """Counters by their rate; gauges of the whole system are the same from each pod."""
    text = rule["expr"] + rule["annotations"]["description"]
    for name in re.findall(r"\bcortex_\w+", text):
        metric = metric_of(name)
        assert metric is not None
        before = r"(rate|increase)\(" if metric.kind == "counter" else r"max(?: by \(\w+\) )?\("
        assert re.search(rf"{before}{name}\b", text), name
    for labels, name in re.findall(r"by \(([\w, ]+)\) \((?:rate\()?(cortex_\w+)", text):
        metric = metric_of(name)
        assert metric is not None
        assert set(labels.split(", ")) <= set(metric.labels)
    for name, chosen in re.findall(r"(cortex_\w+)\{(.*?)\}", text):
        metric = metric_of(name)
        assert metric is not None
        assert set(re.findall(r"(\w+)=", chosen)) <= set(metric.labels)


def test_each_rule_fires_and_clears_when_it_should() -> None:
    result = promtool("test", "rules", RULES_TEST)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_alert_has_a_runbook() -> None:
    sections = dict(
        re.findall(r"^## (\w+)\n\n\*(\w+)\.\*", RUNBOOKS.read_text("utf-8"), re.MULTILINE)
    )
    assert sections == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


FAULTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "it never fires": lambda rule: {**rule, "expr": "vector(0) > 1"},
    "it always fires": lambda rule: {**rule, "expr": "vector(1) > 0"},
    "its severity is another": lambda rule: {**rule, "labels": {"severity": "none"}},
    "it fires at once": lambda rule: {key: value for key, value in rule.items() if key != "for"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rule_test_fails_for_each_broken_rule(fault: str, tmp_path: Path) -> None:
    broken = [FAULTS[fault](rule) for rule in rules()]
    names = {rule["alert"] for rule in rules() if rule not in broken}
    copy = tmp_path / RULES_TEST.name
    copy.write_bytes(RULES_TEST.read_bytes())
    (tmp_path / RULES.name).write_text(
        yaml.safe_dump({"groups": [{"name": "broken", "rules": broken}]}), "utf-8"
    )
    result = promtool("test", "rules", copy)
    assert names
    assert set(re.findall(r"alertname: (\w+)", result.stderr)) == names


def test_the_table_of_metrics_has_a_row_for_each() -> None:
    rows = list(_metrics())
    assert [row[0].strip("`") for row in rows] == [metric.name for metric in METRICS]
    assert all(len(row) == 4 and all(row) for row in rows)
    assert not [row for row in rows if "|" in "".join(row)]
