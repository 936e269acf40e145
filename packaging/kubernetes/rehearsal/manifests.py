"""What the rendered manifests say about a pod: commands, environment, volumes, probes, times."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs
import yaml

FOLDER: Final = Path(__file__).parent.parent
MODES: Final = ("single", "several", "tick")


@attrs.frozen(kw_only=True)
class Probe:
    path: str
    every_s: float
    within_s: float
    failures: int

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(
            path=given["httpGet"]["path"],
            every_s=given["periodSeconds"],
            within_s=given["timeoutSeconds"],
            failures=given["failureThreshold"],
        )


@attrs.frozen(kw_only=True)
class Container:
    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    from_secrets: Mapping[str, tuple[str, str]]
    """Variables that come from one key of a secret each."""
    secrets: Mapping[str, bool]
    """Secrets whose keys become variables, and whether each must exist."""
    mounts: Mapping[str, str]
    """Path to volume."""
    ports: Mapping[str, int]
    probes: Mapping[str, Probe]
    pre_stop_s: float

    @property
    def start_s(self) -> float:
        """How long it may take to start."""
        return self.probes["startup"].every_s * self.probes["startup"].failures

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        secrets = [each["secretRef"] for each in given.get("envFrom", [])]
        variables = given.get("env", [])
        keys = {
            each["name"]: each["valueFrom"]["secretKeyRef"]
            for each in variables
            if "valueFrom" in each
        }
        kinds = ("startup", "liveness", "readiness")
        probes = {kind: given.get(f"{kind}Probe") for kind in kinds}
        return cls(
            name=given["name"],
            arguments=tuple(given["args"]),
            environment={each["name"]: each["value"] for each in variables if "value" in each},
            from_secrets={name: (key["name"], key["key"]) for name, key in keys.items()},
            secrets={each["name"]: not each.get("optional", False) for each in secrets},
            mounts={each["mountPath"]: each["name"] for each in given["volumeMounts"]},
            ports={each["name"]: each["containerPort"] for each in given.get("ports", [])},
            probes={kind: Probe.of(probe) for kind, probe in probes.items() if probe},
            pre_stop_s=given.get("lifecycle", {})
            .get("preStop", {})
            .get("sleep", {})
            .get("seconds", 0),
        )


@attrs.frozen(kw_only=True)
class PodTemplate:
    first: tuple[Container, ...]
    """Init containers, in their order."""
    main: Container
    volumes: Mapping[str, Mapping[str, Any]]
    user: int
    group: int
    grace_s: float

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Self:
        (main,) = spec["containers"]
        return cls(
            first=tuple(map(Container.of, spec.get("initContainers", []))),
            main=Container.of(main),
            volumes={each["name"]: each for each in spec["volumes"]},
            user=spec["securityContext"]["runAsUser"],
            group=spec["securityContext"]["runAsGroup"],
            grace_s=spec["terminationGracePeriodSeconds"],
        )


@attrs.frozen(kw_only=True)
class Overlay:
    """One overlay: how many pods of which template."""

    mode: str
    pod: PodTemplate
    replicas: int
    """0: pods come from a CronJob."""
    schedule: str | None

    @property
    def has_own_database(self) -> bool:
        """Whether it runs without the address of a database."""
        return "CORTEX_DSN" not in self.pod.main.from_secrets


def rendered(mode: str) -> list[dict[str, Any]]:
    """Return the objects of an overlay. Needs `kubectl` on PATH."""
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER / "overlays" / mode],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"kubectl kustomize overlays/{mode}: {done.stderr}")
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def overlay(mode: str) -> Overlay:
    objects = {each["kind"]: each.get("spec", {}) for each in rendered(mode)}
    if (cron := objects.get("CronJob")) is not None:
        pod = cron["jobTemplate"]["spec"]["template"]["spec"]
        return Overlay(mode=mode, pod=PodTemplate.of(pod), replicas=0, schedule=cron["schedule"])
    deployment = objects["Deployment"]
    scaler = objects.get("HorizontalPodAutoscaler", {})
    return Overlay(
        mode=mode,
        pod=PodTemplate.of(deployment["template"]["spec"]),
        replicas=scaler.get("minReplicas", deployment.get("replicas", 1)),
        schedule=None,
    )
