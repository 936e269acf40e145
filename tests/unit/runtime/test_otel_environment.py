"""The environment variables of OpenTelemetry."""

from typing import Any

import pytest
import structlog

from cortex.domain.tracing.sampling import Sampler
from cortex.runtime.tracing.environment import ExportSettings
from cortex.runtime.tracing.start import NoExporter, span_exporter


def read(**environ: str) -> tuple[ExportSettings | None, list[str]]:
    """Return the settings, and the errors that were warned of."""
    warned: list[str] = []

    def warn(_: str, **fields: Any) -> None:
        warned.append(fields["error"])

    names = {f"OTEL_{name}": value for name, value in environ.items()}
    return ExportSettings.of_environment(names, warn=warn), warned


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"EXPORTER_OTLP_ENDPOINT": ""},
        {"EXPORTER_OTLP_ENDPOINT": "http://c:4318", "SDK_DISABLED": "true"},
        {"EXPORTER_OTLP_ENDPOINT": "http://c:4318", "TRACES_EXPORTER": "none"},
    ],
)
def test_spans_are_exported_only_on_request(environ: dict[str, str]) -> None:
    assert read(**environ) == (None, [])


@pytest.mark.parametrize(
    "environ, url",
    [
        ({"EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({"EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1/x"}, "http://c:1/x"),
        ({"TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
    ],
)
def test_collector_address_is_read_from_the_environment(environ: dict[str, str], url: str) -> None:
    settings, warned = read(**environ)
    assert settings is not None
    assert (settings.target.url, warned) == (url, [])


def test_all_else_that_is_understood() -> None:
    settings, warned = read(
        EXPORTER_OTLP_ENDPOINT="http://c:4318",
        EXPORTER_OTLP_HEADERS="api-key=a%20b, x=1,",
        EXPORTER_OTLP_TIMEOUT="2500",
        EXPORTER_OTLP_COMPRESSION="gzip",
        EXPORTER_OTLP_PROTOCOL="http/protobuf",
        TRACES_SAMPLER="traceidratio",
        TRACES_SAMPLER_ARG="0.5",
        RESOURCE_ATTRIBUTES="service.name=other,deployment.environment.name=test",
        SERVICE_NAME="mine",
    )
    assert settings is not None
    assert settings.headers == (("api-key", "a b"), ("x", "1"))
    assert (settings.timeout_s, settings.is_compressed) == (2.5, True)
    assert settings.sampler == Sampler(ratio=0.5, follows_parent=False)
    assert settings.service == "mine"
    assert settings.resource == (("deployment.environment.name", "test"),)
    assert warned == []


@pytest.mark.parametrize(
    "environ, error, is_off",
    [
        (
            {"EXPORTER_OTLP_ENDPOINT": "c:4318?key=abc"},
            "OTEL_EXPORTER_OTLP_ENDPOINT is 'c:4318', which is not usable",
            True,
        ),
        (
            {"EXPORTER_OTLP_TRACES_ENDPOINT": "http://ana:abc@c"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is a URL with a password, which",
            True,
        ),
        ({"EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'", True),
        (
            {"EXPORTER_OTLP_TRACES_TIMEOUT": "soon"},
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT is 'soon'",
            False,
        ),
        ({"EXPORTER_OTLP_HEADERS": "a=%0Aabc"}, "OTEL_EXPORTER_OTLP_HEADERS: 'a' cannot", False),
        (
            {"EXPORTER_OTLP_HEADERS": "Authorization: Bearer abcabc=="},
            "OTEL_EXPORTER_OTLP_HEADERS: pair 1 cannot",
            False,
        ),
        (
            {"EXPORTER_OTLP_HEADERS": "a=b, api-key: abc"},
            "OTEL_EXPORTER_OTLP_HEADERS: pair 2 cannot",
            False,
        ),
        ({"TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER 'some'", False),
    ],
)
def test_a_wrong_value_is_warned_of_and_stops_no_pod(
    environ: dict[str, str], error: str, is_off: bool
) -> None:
    settings, (warned,) = read(**{"EXPORTER_OTLP_ENDPOINT": "http://c:4318"} | environ)
    assert error in warned
    assert "abc" not in warned, "it may be a secret"
    assert (settings is None) is is_off


def test_export_warning_uses_the_configured_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "rubbish")
    given: Any = None  # not used: nothing is exported
    events: list[Any] = []

    def keep(_logger: object, _method: str, event: Any) -> Any:
        events.append(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])  # as `cortex up` does, after it has imported all
    try:
        assert isinstance(span_exporter(given, pod=given, chance=given), NoExporter)
    finally:
        structlog.configure(**before)
    assert [each["event"] for each in events] == ["traces not exported"]
