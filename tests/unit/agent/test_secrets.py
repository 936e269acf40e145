"""Secrets: references in YAML that never show a value, and their values on the pod."""

import os
import traceback
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.secrets import SECRETS_MAX, SecretReference, Secrets
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain import redaction
from cortex.domain.errors import ForbiddenError, RejectedError, UnfitCodeError, UsageError
from cortex.durable.codec import input_of
from cortex.http_client.secret_values import VALUE_BYTES_MAX
from tests.support.knowing import forget_secrets

SMALL = "name: a\nmodel: m\nsystem: s\n"
VALUE = "sk-live-0f9e8d7c6b"
ENV = {"name": "a", "secrets": {"MAIL_TOKEN": {"env": "TEST_MAIL_TOKEN"}}}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)


def at(path: Path, **more: Any) -> Secrets:
    return Secrets.of({"name": "a", "secrets": {"DB": {"file": str(path), **more}}})


# --- in a specification


def test_stored_secrets_contain_only_references() -> None:
    text = (
        SMALL
        + """\
secrets:
  MAIL_TOKEN: {env: MAIL_TOKEN}
  DB_PASSWORD: {file: /run/secrets/db}
  API_KEY: {env: API_KEY, hosts: [api.example.com, "http://localhost:8080"]}
"""
    )
    (spec,) = parse_agents(text, "f")
    stored = spec.to_json()
    assert stored["secrets"] == {
        "MAIL_TOKEN": {"env": "MAIL_TOKEN"},
        "DB_PASSWORD": {"file": "/run/secrets/db"},
        "API_KEY": {"env": "API_KEY", "hosts": ["api.example.com", "http://localhost:8080"]},
    }
    assert AgentSpec.from_json(stored) == spec


def test_an_agent_without_secrets_is_stored_as_before() -> None:
    """Else every job of an agent that began before would diverge."""
    (spec,) = parse_agents(SMALL, "f")
    assert "secrets" not in spec.to_json()
    (other,) = parse_agents(SMALL + "secrets: {}\n", "f")
    assert (
        input_of({"agent": other.to_json()}, what="spec").digest
        == input_of({"agent": spec.to_json()}, what="spec").digest
    )


NO_REFERENCE = "must be a reference, {env: VARIABLE} or {file: /path}"
LITERALS: dict[str, str] = {
    f"secrets: {{MAIL_TOKEN: {VALUE}}}": f"f:4: secrets.MAIL_TOKEN {NO_REFERENCE}",
    f"secrets:\n  MAIL_TOKEN: {VALUE}": f"f:5: secrets.MAIL_TOKEN {NO_REFERENCE}",
    f"secrets:\n  MAIL_TOKEN: {{value: {VALUE}}}": f"f:5: secrets.MAIL_TOKEN {NO_REFERENCE}",
    f"secrets:\n  MAIL_TOKEN: {{{VALUE}}}": f"f:5: secrets.MAIL_TOKEN {NO_REFERENCE}",
    f"secrets:\n  MAIL_TOKEN: [{VALUE}]": f"f:5: secrets.MAIL_TOKEN {NO_REFERENCE}",
    f"secrets:\n  MAIL_TOKEN:\n    env: {VALUE}": "f:6: secrets.MAIL_TOKEN.env must be the name",
    f"secrets:\n  MAIL_TOKEN:\n    env: [{VALUE}]": "f:6: secrets.MAIL_TOKEN.env must be text",
    f"secrets:\n  MAIL_TOKEN:\n    file: {VALUE}": "f:6: secrets.MAIL_TOKEN.file must be the full",
    f"secrets:\n  MAIL_TOKEN: {{env: A, hosts: {VALUE}}}": "f:5: secrets.MAIL_TOKEN.hosts must be",
    f"secrets:\n  MAIL_TOKEN: {{env: A, hosts: ['{VALUE}/x']}}": "MAIL_TOKEN.hosts must be hosts",
    f"secrets:\n  MAIL_TOKEN: {{env: A, file: /{VALUE}}}": "MAIL_TOKEN must have either env or",
    f"secrets: [{VALUE}]": "f:4: secrets must be names",
    f"secrets: {VALUE}": "f:4: secrets must be names",
    f"secrets: {{{VALUE}}}": "f:4: secrets must be names",
    f"secrets: {{{VALUE}: {{env: A}}}}": "f:4: secrets must be names",
    f"secrets: {{MAIL_TOKEN: }}\nbudget: {VALUE}": f"f:4: secrets.MAIL_TOKEN {NO_REFERENCE}",
}


@pytest.mark.parametrize("text, output", LITERALS.items(), ids=[*map(repr, LITERALS)])
def test_a_value_in_place_of_a_reference_is_refused_and_never_repeated(
    text: str, output: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_agents(SMALL + text + "\n", "f")
    assert output in caught.value.message
    if "budget" not in text:  # whose value is no secret
        shown = "".join(traceback.format_exception(caught.value)) + str(caught.value.hint)
        assert VALUE not in shown


@given(st.text(min_size=8, alphabet=st.characters(exclude_categories=["Cs", "Cc"])))
def test_no_text_in_place_of_a_reference_is_ever_repeated(value: str) -> None:
    literal = yaml.safe_dump({"secrets": {"X": value, "Y": {"env": value}}}, allow_unicode=True)
    with pytest.raises(UsageError) as caught:
        parse_agents(SMALL + literal, "f")
    ours = f"f:4: secrets.X {NO_REFERENCE}; the value itself belongs on the pod (and 1 more)"
    assert value in ours or value not in caught.value.message


@pytest.mark.parametrize(
    "host",
    ["https://a.b", "a.b/x", "*.a.b", "a b", "user@a.b", "", "a.b:", "a.b:123456", "-a", "a.b?x"],
)
def test_only_hosts_are_hosts(host: str) -> None:
    with pytest.raises(UnfitCodeError, match=r"secrets\.K\.hosts must be hosts"):
        AgentSpec.from_json(
            {
                "name": "a",
                "model": "m",
                "system": "s",
                "secrets": {"K": {"env": "K", "hosts": [host]}},
            }
        )


def test_number_of_secrets_is_limited() -> None:
    text = "secrets:\n" + "".join(f"  S{n}: {{env: A}}\n" for n in range(SECRETS_MAX + 1))
    with pytest.raises(UsageError, match="has 33 secrets, at most 32"):
        parse_agents(SMALL + text, "f")


def test_a_stored_reference_of_another_version_is_an_error_for_people() -> None:
    with pytest.raises(UsageError, match="'a' has secrets that this pod cannot read"):
        Secrets.of({"name": "a", "secrets": {"K": {"vault": "x"}}})


# --- on the pod


def test_a_variable_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Secrets.of(ENV)
    for value in (VALUE, "another value"):
        monkeypatch.setenv("TEST_MAIL_TOKEN", value)
        assert secrets.value("MAIL_TOKEN") == value
        marker = f"[secret MAIL_TOKEN, {len(value)} characters]"
        assert redaction.redact(f"it is {value}") == f"it is {marker}"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"], ids=repr)
def test_a_file_is_read_at_each_call_without_its_last_line_break(
    tmp_path: Path, ending: str
) -> None:
    file = tmp_path / "secret"
    for value in (VALUE, "two\nlines\n and more"):
        file.write_bytes(value.encode() + ending.encode())
        assert at(file).value("DB") == value
        assert value not in redaction.redact(f"<{value}>")


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As those are by which an orchestrator swaps a secret for its next version."""
    (tmp_path / "v1").write_text(VALUE)
    (tmp_path / "link").symlink_to("v1")
    assert at(tmp_path / "link").value("DB") == VALUE


def test_missing_secret_is_reported_with_reference_and_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_MAIL_TOKEN", raising=False)
    pod = rf"secret \w+ on pod [^ ]+:{os.getpid()}: "
    with pytest.raises(RejectedError, match=pod + "environment variable TEST_MAIL_TOKEN"):
        Secrets.of(ENV).value("MAIL_TOKEN")
    with pytest.raises(RejectedError, match=pod + "file /.*/none cannot be read: No such file"):
        at(tmp_path / "none").value("DB")
    with pytest.raises(RejectedError, match=pod + "file /.* is not a file"):
        at(tmp_path).value("DB")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RejectedError, match="is not a file"):
        at(tmp_path / "pipe").value("DB")


@pytest.mark.parametrize(
    "content, output",
    [
        (b"hjkl", "has 4 characters, at least 8"),
        (b"", "has 0 characters"),
        (b"hjkl hjkl \xff hjkl", "does not hold text"),
        (b"hjkl hjkl \x00 hjkl", "does not hold text"),
        (b"hjkl" * VALUE_BYTES_MAX, "larger than 65,536 bytes"),
    ],
    ids=["short", "empty", "bytes", "NUL", "large"],
)
def test_invalid_secret_is_refused_without_being_shown(
    tmp_path: Path, content: bytes, output: str
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(RejectedError, match=output) as caught:
        at(file).value("DB")
    assert "hjkl" not in "".join(traceback.format_exception(caught.value))


def test_only_declared_secrets_are_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", VALUE)
    with pytest.raises(RejectedError, match="agent 'a' declares no secret 'OTHER'") as caught:
        Secrets.of(ENV).value("OTHER")
    assert "it has MAIL_TOKEN" in str(caught.value.hint)
    with pytest.raises(RejectedError, match="the job has no agent"):
        Secrets.of(None).value("OTHER")
    with pytest.raises(RejectedError, match="declares no secret"):
        Secrets.of({"name": "a"}).value("OTHER")


def test_register_redacts_all_readable_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_MAIL_TOKEN", raising=False)
    file = tmp_path / "secret"
    file.write_text(VALUE)
    Secrets.of({"secrets": {**ENV["secrets"], "DB": {"file": str(file)}}}).register()  # type: ignore[dict-item]
    assert redaction.redact(VALUE) == "[secret DB, 18 characters]"


async def test_tool_reads_secrets_from_a_context_that_hides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def tell(context: ToolContext) -> str:
        """Tell."""
        return f"{context.secret('MAIL_TOKEN')} {context!r} {context.secrets}"

    monkeypatch.setenv("TEST_MAIL_TOKEN", VALUE)
    context = ToolContext(UUID(int=1), 1, "1", tmp_path, secrets=Secrets.of(ENV))
    output, shown = str(await tell.call(context, {})).split(" ", 1)
    assert output == VALUE
    assert VALUE not in shown
    assert "Secrets(MAIL_TOKEN)" in shown


# --- in a header


def test_a_header_gets_a_secret_for_its_own_hosts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", VALUE)
    hosts = ["api.example.com", "b.example.com:8443", "http://c.example.com", "[::1]:9"]
    reference = SecretReference(env="K", hosts=hosts)
    secrets = Secrets(references={"K": reference}, agent="a")
    allowed = [
        ("https", "api.example.com", 443),
        ("https", "b.example.com", 8443),
        ("http", "c.example.com", 80),
        ("https", "::1", 9),
    ]
    for origin in allowed:
        assert secrets.in_header("Bearer {secret:K}", origin) == f"Bearer {VALUE}"
    elsewhere = [
        ("http", "api.example.com", 80),
        ("http", "api.example.com", 443),
        ("https", "api.example.com", 8443),
        ("https", "api.example.com.", 443),
        ("https", "xapi.example.com", 443),
        ("https", "api.example.com.evil.org", 443),
        ("https", "b.example.com", 443),
        ("https", "c.example.com", 443),
        ("https", "evil.org", 443),
    ]
    forget_secrets(monkeypatch)
    for origin in elsewhere:
        with pytest.raises(ForbiddenError, match="secret K may not be sent to") as caught:
            secrets.in_header("x {secret:K}", origin)
        assert VALUE not in f"{caught.value} {caught.value.hint}"
    assert not redaction.knows_any()  # it was not even looked up
    assert secrets.in_header("no secret: {secret}", elsewhere[0]) == "no secret: {secret}"


def test_header_refuses_undeclared_hostless_and_multiline_secrets(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secret"
    file.write_text("two\nlines of it")
    origin = ("https", "a.b", 443)
    with pytest.raises(ForbiddenError, match="may not be sent to https"):
        at(file).in_header("{secret:DB}", origin)
    with pytest.raises(RejectedError, match="declares no secret ''"):
        at(file).in_header("{secret:}", origin)
    with pytest.raises(RejectedError, match="DB contains a line break") as caught:
        at(file, hosts=["a.b"]).in_header("{secret:DB}", origin)
    assert "lines" not in f"{caught.value}"
