"""Keys that nobody declared are masked in what people and models see, by shape and by name."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cortex.agent.confinement.means import Confiner
from cortex.agent.plain import raw_text
from cortex.agent.tools.tool import ToolContext, tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.agent.tools.write_file import write_file
from cortex.cli.jobs.job_page import block
from cortex.domain.confinement import Confinement
from cortex.domain.errors import RejectedError
from cortex.domain.key_shapes import NAMES, SHAPES, masked, masked_value
from cortex.domain.log_line import kept_fields, kept_text, without_long_secrets
from cortex.domain.redaction import clean_text
from cortex.durable.attempt import ToolCall
from cortex.durable.codec import encode, input_of
from tests.support.records.factories import a_context, a_tool_call
from tests.support.records.rows import new_id

KEYS = {shape.name: shape.example.replace(" ", "", 1) for shape in SHAPES}
KEYS["private key"] = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
)
KEYS["bearer token"] = "Bearer " + "aB3x" * 8
SECRET_PART = {"password in a URL": "hunter22", "bearer token": "aB3x" * 8}


def secret_of(name: str) -> str:
    return SECRET_PART.get(name, KEYS[name].removeprefix("AccountKey="))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "see {} here", '{{"a": "{}"}}', "x={};", "\n{}\n", "({})"]
)
def test_a_key_is_masked(name: str, around: str) -> None:
    text = around.format(KEYS[name])
    shown = masked(text)
    assert secret_of(name) not in shown
    assert f"[masked {name}, " in shown
    assert masked(shown) == shown


@pytest.mark.parametrize("name", KEYS)
def test_each_way_out_is_masked(name: str) -> None:
    key, secret = KEYS[name], secret_of(name)
    shown = [
        kept_text(f"it is {key}"),
        without_long_secrets(f"it is\n{key}\n"),
        kept_fields({"a": {"b": key}, "c": key}) or "",
        clean_text(f"it is {key}"),
        raw_text({"a": key}),
        input_of({"a": key}, what="x").kept,
        *block({"result": {"a": [key]}}, indent=""),
    ]
    for each in shown:
        assert secret not in each
        assert secret not in each.replace("\\n", "\n")
    assert json.loads(kept_fields({"a": key}) or "")


@pytest.mark.parametrize("name", KEYS)
def test_json_stays_json(name: str) -> None:
    text = json.dumps({"a": KEYS[name], "b": [KEYS[name], "c"], KEYS[name]: 1})
    shown = json.loads(masked(text))
    assert shown["b"][1] == "c"
    assert secret_of(name) not in json.dumps(shown)


@pytest.mark.parametrize(
    "name", ["password", "apiKey", "Authorization", "CLIENT-SECRET", "set-cookie"]
)
def test_a_value_of_a_secret_name_is_masked(name: str) -> None:
    shown = masked_value({"a": [{name: "correct horse", "user": "ana"}]})
    assert shown == {"a": [{name: f"[masked {name}, 13 characters]", "user": "ana"}]}
    assert "correct" not in (kept_fields({name: "correct horse"}) or "")
    assert masked_value(shown) == shown


@pytest.mark.parametrize(
    "value",
    [
        "4bf92f3577b34da6a3ce929d0e0e4736",  # a trace
        "da29bb4f5e5b2e0f8a3c4d5e6f708192a3b4c5d6",  # a commit
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "019a0000-0000-7000-8000-000000000001",
        "https://example.org:8080/a?b=c",
        "postgresql://u:***@db/x",
        "sk-learn-is-a-name-of-a-package",
        "postgresql://db:5432/x?user=ana@example",
        "sk-learn and task-force; AKIA; eyJ; Bearer of news",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7 ana@host",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "data:image/png;base64," + "iVBORw0KGgo" * 20,
        "password reset, secret santa, key results, cookies",
    ],
)
def test_ordinary_text_is_not_masked(value: str) -> None:
    assert masked(value) == value
    assert masked_value({"text": value, "token_count": "1234", "key": "order-17"}) == {
        "text": value,
        "token_count": "1234",
        "key": "order-17",
    }


def test_values_that_a_job_computes_with_are_not_masked() -> None:
    """A step's result and its replay are the same, whatever shape the text has."""
    value = {"token": list(KEYS.values()), "password": "correct horse"}
    assert json.loads(encode(value, what="result")) == value


@tool(local=True)
def read_mail(body: str) -> dict[str, Any]:
    """Read a mail."""
    return {"body": f"use {KEYS['GitHub token']} {body}", "password": "correct horse"}


@pytest.mark.parametrize("body", ["", "x" * 1_000_000], ids=["short", "long"])
@pytest.mark.parametrize("is_of_model", [True, False])
async def test_a_model_sees_and_the_record_keeps_masked_results(
    tmp_path: Path, is_of_model: bool, body: str
) -> None:
    ctx = a_context(workspaces=tmp_path)
    asked = a_tool_call("read_mail")
    call = ToolCall(
        tool=asked.tool,
        arguments={"body": body},
        key=asked.key,
        gate_key=asked.gate_key,
        said="" if is_of_model else None,
        folder=None,
        timeout_s=None,
    )
    plan = await Toolbox({"read_mail": read_mail}).plan(ctx._attempt, call)
    result = await plan.run(None)
    assert ("correct horse" in str(result)) is not is_of_model
    assert (KEYS["GitHub token"] in str(result)) is not is_of_model


@pytest.mark.parametrize("name", KEYS)
def test_a_file_keeps_its_keys_unmasked(tmp_path: Path, name: str) -> None:
    """A model that copies what it has read would replace the key by the mark."""
    context = ToolContext(
        job_id=new_id(),
        attempt=1,
        call_id="1",
        workspace=tmp_path,
        confiner=Confiner(means=Confinement.NONE),
    )
    with pytest.raises(RejectedError, match="in place of a key"):
        write_file.run(context, "copy", masked(f"url = {KEYS[name]}\n"))
    assert list(tmp_path.iterdir()) == []


FLOODS = {
    "url": "://" + "a" * 1_000_000,
    "urls": "://a:" * 200_000,
    "tokens": "eyJ" * 330_000,
    "begun private keys": "-----BEGIN PRIVATE KEY-----" * 37_000,
    "bearers": "Bearer " * 140_000,
    "prefixes": "".join(literal for shape in SHAPES for literal in shape.literals) * 2_500,
}


@pytest.mark.parametrize("text", FLOODS.values(), ids=FLOODS)
def test_a_flood_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    masked(text)
    assert time.process_time() - began < 1.5


def test_names_are_written_as_they_are_compared() -> None:
    assert all(name.isalnum() and name == name.lower() for name in NAMES)
