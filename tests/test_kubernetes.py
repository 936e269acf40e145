"""Manifests name this version and a pod's deadlines; `packaging/kubernetes/check` renders them."""

from pathlib import Path
from typing import Any

import yaml

import cortex
from cortex.config import Settings
from cortex.runtime.metrics.metrics_catalogue import METRICS

FOLDER = Path(__file__).parent.parent / "packaging" / "kubernetes"


def manifest(path: str) -> Any:
    return yaml.safe_load((FOLDER / path).read_text("utf-8"))


def test_they_start_this_version() -> None:
    chart = manifest("chart/Chart.yaml")
    (image,) = manifest("components/common/kustomization.yaml")["images"]
    tags = {chart["appVersion"], manifest("chart/values.yaml")["image"]["tag"], image["newTag"]}
    assert {chart["version"], *tags} == {cortex.__version__}


def test_a_pod_gets_the_time_that_its_settings_count_on() -> None:
    pod = manifest("base/deployment.yaml")["spec"]["template"]["spec"]
    settings = Settings()
    assert pod["terminationGracePeriodSeconds"] == settings.kill_s
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == settings.pre_stop_s


def test_the_autoscaler_reads_a_metric_that_exists() -> None:
    (metric,) = manifest("overlays/several/autoscaler.yaml")["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in {each.name for each in METRICS}
