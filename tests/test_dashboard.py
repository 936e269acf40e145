"""The dashboard for Grafana shows every metric, each as it is to be asked for."""

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from cortex.runtime.metrics.metrics_catalogue import CLAIMS, METRICS
from tests.support.dashboard import ACROSS, FILE, GROUPS, group_of, text
from tests.support.promtool import promtool

PANELS: list[dict[str, Any]] = json.loads(text())["panels"]
GRAPHS = [each for each in PANELS if each["type"] != "row"]
EXPRESSIONS = [target["expr"] for each in GRAPHS for target in each["targets"]]


def test_the_file_is_the_generated_one() -> None:
    assert FILE.read_text("utf-8") == text(), "run: python -m tests.support.generate dashboard"


def test_each_metric_has_one_panel() -> None:
    asked = [set(re.findall(r"cortex_\w+", str(each["targets"]))) for each in GRAPHS]
    names = [re.sub(r"_bucket$", "", name) for found in asked for name in found]
    assert all(len(found) == 1 for found in asked)
    assert sorted(names) == sorted(each.name for each in METRICS)


def test_a_metric_without_a_row_is_refused() -> None:
    with pytest.raises(LookupError, match="cortex_weather"):
        group_of(attrs.evolve(CLAIMS, name="cortex_weather"))


def test_each_panel_has_a_place_a_unit_and_a_description() -> None:
    places = [each["gridPos"] for each in PANELS]
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in places
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
    assert max(x for x, _ in cells) < ACROSS
    assert {each["title"] for each in PANELS if each["type"] == "row"} <= set(GROUPS)
    titles = [each["title"] for each in GRAPHS]
    assert len(titles) == len(set(titles))
    assert len({each["id"] for each in PANELS}) == len(PANELS)
    units = {each["fieldConfig"]["defaults"]["unit"] for each in GRAPHS}
    assert units == {"cps", "s", "short", "currencyUSD"}
    assert all(each["description"] and each["targets"][0]["legendFormat"] for each in GRAPHS)


def test_prometheus_can_read_each_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": each.replace("$__rate_interval", "5m")}
        for number, each in enumerate(EXPRESSIONS)
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    result = promtool("check", "rules", path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"SUCCESS: {len(EXPRESSIONS)} rules found" in result.stdout
