"""Secrets in headers: by reference, only those that the operator permits, only to their hosts."""

from pathlib import Path

import pytest

from cortex.domain.errors import ForbiddenError, InvalidValueError, RejectedError, UsageError
from cortex.domain.redaction import redact
from cortex.http_client.client import HttpClient, Request
from cortex.http_client.secret_values import PermittedSecrets, SecretPlace
from tests.support.knowing import forget_secrets
from tests.support.servers.web_server import WebServer as Server

VALUE = "sk-live-0f9e8d7c6b"


@pytest.fixture(autouse=True)
def value(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)
    monkeypatch.setenv("CRM_TOKEN", VALUE)


async def send(server: Server, secrets: PermittedSecrets, header: str) -> str:
    request = Request.made("GET", server.url(), headers={"X-Token": header}, secrets=secrets)
    async with HttpClient(server.allowed) as client:
        await client.follow(request)
    return server.asked[0]


@pytest.mark.parametrize("before", ["", "Bearer "])
async def test_a_permitted_secret_is_sent_and_redacted(server: Server, before: str) -> None:
    secrets = PermittedSecrets.parse(f"env:CRM_TOKEN@http://127.0.0.1:{server.port}")
    asked = await send(server, secrets, f"{before}env:CRM_TOKEN")
    assert f"\r\nX-Token: {before}{VALUE}\r\n".lower() in asked.lower()
    assert VALUE not in redact(asked)


async def test_secret_file_is_read_again_for_each_request(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "hook"
    reference = f"file:{file}"
    secrets = PermittedSecrets.parse(f"{reference}@http://127.0.0.1:{server.port}")
    for text in ("first-value-1\n", "second-value-2\n"):
        file.write_text(text)
        server.asked.clear()
        assert text.strip() in await send(server, secrets, reference)


@pytest.mark.parametrize(
    "permitted", ["", "env:OTHER@http://127.0.0.1:{port}", "env:CRM_TOKEN@127.0.0.1:{port}"]
)
async def test_unpermitted_secret_is_never_sent(server: Server, permitted: str) -> None:
    secrets = PermittedSecrets.parse(permitted.format(port=server.port))
    with pytest.raises(ForbiddenError, match="may not be sent to") as caught:
        await send(server, secrets, "env:CRM_TOKEN")
    assert "CORTEX_HTTP_SECRETS" in str(caught.value.hint)
    assert server.asked in ([], [""])


@pytest.mark.parametrize("value", ["env:crm", "file:relative", f"env:{VALUE}"])
async def test_invalid_secret_reference_is_not_shown(server: Server, value: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        await send(server, PermittedSecrets(), value)
    assert value not in str(caught.value)


async def test_a_line_break_in_a_secret_adds_no_header(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "good-enough\r\nX-Evil: 1")
    secrets = PermittedSecrets.parse(f"env:CRM_TOKEN@http://127.0.0.1:{server.port}")
    with pytest.raises(RejectedError, match="line break") as caught:
        await send(server, secrets, "env:CRM_TOKEN")
    assert "good-enough" not in str(caught.value)


@pytest.mark.parametrize("text", ["CRM_TOKEN", "env:CRM_TOKEN", "env:crm@host", "env:A@a b"])
def test_a_bad_setting_names_its_entry(text: str) -> None:
    with pytest.raises(UsageError, match="CORTEX_HTTP_SECRETS"):
        PermittedSecrets.parse(text)


def test_a_missing_value_names_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRM_TOKEN")
    with pytest.raises(RejectedError, match="environment variable CRM_TOKEN is not set"):
        SecretPlace.parse("env:CRM_TOKEN").read("crm")
