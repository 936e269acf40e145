"""The manifests fit this version, and each other; `packaging/kubernetes/check` renders them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import cortex
from cortex.config import Settings
from cortex.http.health import ROUTES
from cortex.runtime.metrics.metrics_catalogue import METRICS

FOLDER = Path(__file__).parent.parent / "packaging" / "kubernetes"
POD_TEMPLATES = ("base/deployment.yaml", "overlays/tick/cronjob.yaml")


@cache
def manifest(path: str) -> Any:
    return yaml.safe_load((FOLDER / path).read_text("utf-8"))


def spec_of(path: str) -> Any:
    """The pod's part of a Deployment or a CronJob."""
    spec = manifest(path)["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]


def labels_of(path: str) -> dict[str, str]:
    spec = manifest(path)["spec"]
    template = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
    return {**template["metadata"]["labels"], **common_labels()}


def common_labels() -> Any:
    """Kustomize adds these to all objects, templates and selectors."""
    (each,) = manifest("components/common/kustomization.yaml")["labels"]
    assert each["includeSelectors"] is each["includeTemplates"] is True
    return each["pairs"]


def containers() -> Iterator[tuple[Any, Any]]:
    """Each container with the pod around it."""
    for path in POD_TEMPLATES:
        pod = spec_of(path)
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            yield pod, container


def test_manifests_start_this_version() -> None:
    chart = manifest("chart/Chart.yaml")
    (image,) = manifest("components/common/kustomization.yaml")["images"]
    tags = {chart["appVersion"], manifest("chart/values.yaml")["image"]["tag"], image["newTag"]}
    assert {chart["version"], *tags} == {cortex.__version__}


def test_a_pod_gets_the_time_that_its_settings_count_on() -> None:
    settings = Settings()
    assert {spec_of(path)["terminationGracePeriodSeconds"] for path in POD_TEMPLATES} == {
        settings.kill_s
    }
    (container,) = spec_of("base/deployment.yaml")["containers"]
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == settings.pre_stop_s


def test_the_autoscaler_reads_a_metric_that_exists() -> None:
    (metric,) = manifest("overlays/several/autoscaler.yaml")["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in {each.name for each in METRICS}


def test_probes_use_routes_that_need_no_postgres() -> None:
    (container,) = spec_of("base/deployment.yaml")["containers"]
    kinds = ("startup", "liveness", "readiness")
    probed = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in kinds}
    assert probed == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert set(probed.values()) == {route.path for route in ROUTES}


@pytest.mark.parametrize(
    "selector",
    [
        manifest("base/deployment.yaml")["spec"]["selector"]["matchLabels"],
        manifest("base/service.yaml")["spec"]["selector"],
        manifest("overlays/several/disruption.yaml")["spec"]["selector"]["matchLabels"],
        *(
            each["labelSelector"]["matchLabels"]
            for each in spec_of("overlays/several/pod.yaml")["topologySpreadConstraints"]
        ),
    ],
)
def test_all_select_the_pods_and_no_ticks(selector: dict[str, str]) -> None:
    chosen = {**selector, **common_labels()}.items()
    assert chosen <= labels_of("base/deployment.yaml").items()
    assert not chosen <= labels_of("overlays/tick/cronjob.yaml").items()


def test_the_network_policy_is_of_pods_and_ticks() -> None:
    chosen = manifest("base/networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"].items()
    assert all(chosen <= labels_of(path).items() for path in POD_TEMPLATES)


def test_no_drain_of_a_node_waits_for_ever() -> None:
    """One pod, or pods that are not ready because Postgres is away, can be evicted as well."""
    budget = manifest("overlays/several/disruption.yaml")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_prometheus_finds_the_service_and_its_token() -> None:
    monitor = manifest("components/monitoring/servicemonitor.yaml")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= common_labels().items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {
        port["name"] for port in manifest("base/service.yaml")["spec"]["ports"]
    }
    credentials = endpoint["authorization"]["credentials"]
    secrets = [
        each["secret"] for each in spec_of("base/deployment.yaml")["volumes"] if "secret" in each
    ]
    assert credentials["name"] in {each["secretName"] for each in secrets}


def test_no_container_may_more_than_it_needs() -> None:
    account = manifest("base/serviceaccount.yaml")
    assert account["automountServiceAccountToken"] is False
    for pod, container in containers():
        assert pod["automountServiceAccountToken"] is False
        assert pod["serviceAccountName"] == account["metadata"]["name"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (
            True,
            False,
        )
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {each["secretRef"]["name"] for each in container["envFrom"]} == {"cortex"}
        storage = "ephemeral-storage"
        assert {"memory", storage} == container["resources"]["limits"].keys()
        assert {"cpu", "memory", storage} == container["resources"]["requests"].keys()


def test_the_chart_uses_all_its_values_and_no_others() -> None:
    templates = "".join(path.read_text("utf-8") for path in (FOLDER / "chart/templates").iterdir())
    used = set(re.findall(r"\.Values\.(\w+)", templates))
    assert used == manifest("chart/values.yaml").keys()
    schema = manifest("chart/values.schema.json")
    assert used == schema["properties"].keys()
    assert schema["additionalProperties"] is False


def leaves(schema: Any) -> Iterator[str]:
    for name, given in schema["properties"].items():
        if "properties" in given:
            yield from (f"{name}.{each}" for each in leaves(given))
        else:
            yield name


def test_the_guide_has_every_value_of_the_chart() -> None:
    guide = (FOLDER.parents[1] / "docs/guides/kubernetes.md").read_text("utf-8")
    table = guide.partition("| value | default |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]
    assert named == [*leaves(manifest("chart/values.schema.json"))]


def test_overlays_chart_and_guide_agree_on_measured_memory() -> None:
    measured = manifest("chart/values.yaml")["resources"]
    guide = (FOLDER.parents[1] / "docs/guides/kubernetes.md").read_text("utf-8")
    rows = guide.partition("| container | request | limit |")[2].splitlines()[2:4]
    for row, kind in zip(rows, ("pod", "init"), strict=True):
        figures = measured[kind]["requests"]["memory"], measured[kind]["limits"]["memory"]
        assert all(re.sub("([MG]i)", r" \1B", figure) in row for figure in figures)
    for pod, container in containers():
        is_init = container in pod.get("initContainers", [])
        assert container["resources"] == measured["init" if is_init else "pod"]
