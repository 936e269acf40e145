"""Which client answers for a model's name, and the endpoints of the settings."""

import subprocess
import sys
from pathlib import Path

import pytest

from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.providers import Models, endpoints_of
from cortex.cli.checks import of_models
from cortex.config import Settings, files, load
from cortex.domain.errors import UsageError
from cortex.domain.model_endpoints import model_endpoints
from tests.providers.conftest import asking
from tests.support.servers.model_apis import KEY, Turn, model_apis

GUIDE = Path(__file__).parents[2] / "docs/guides/models.md"
TABLES = """
[models.local]
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api = "chat"

[models.team-b]
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api_key = {{env = "TEAM_B_KEY"}}

[models.gemini]
kind = "google"
base_url = "http://127.0.0.1:{port}"
api_key = {{env = "TEAM_B_KEY"}}
"""


async def test_each_endpoint_gets_its_own_key_and_the_models_name_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys and headers of the SDKs' own variables go to their own addresses only."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer sk-of-openai")
    async with model_apis(*[Turn(text="hi")] * 3) as apis:
        settings = model_endpoints(TABLES.format(port=apis.port).replace("[models.", "["))
        models = Models(endpoints_of(settings, {"TEAM_B_KEY": KEY}))
        for name in ("team-b:gpt-x", "gemini:gemini-x"):
            response = await models.respond(asking(model=name))
            assert response.text == "hi"
        with pytest.raises(Exception, match=r"'local:llama3:8b' at 127.*invalid_api_key"):
            await models.respond(asking(model="local:llama3:8b"))  # this fake wants a key
        await models.aclose()
    assert apis.keys == [KEY, KEY, "none"]
    assert apis.asked[0]["model"] == "gpt-x"
    assert models.provider_of("team-b:gpt-x") == "openai"
    assert models.provider_of("gemini:gemini-x") == "gcp.gemini"
    assert models.provider_of("claude-sonnet-5") == "anthropic"


def test_an_unknown_prefix_is_named_with_those_that_exist() -> None:
    models = Models(
        endpoints_of(model_endpoints('local = {kind = "openai", base_url = "http://h"}'))
    )
    with pytest.raises(UsageError, match="no provider or endpoint 'opnai'") as caught:
        models.capabilities("opnai:gpt-x")
    assert "anthropic, openai, google, local" in str(caught.value.hint)


def test_names_with_a_colon_are_those_of_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://gateway.test")
    assert Models().provider_of("llama3:8b") == "anthropic"


async def test_a_missing_key_is_named_by_the_endpoints_variable() -> None:
    settings = model_endpoints('b = {kind = "openai", api_key = {env = "B_KEY"}}')
    with pytest.raises(UsageError) as caught:
        await Models(endpoints_of(settings, {})).respond(asking(model="b:x"))
    assert caught.value.hint is not None
    assert "B_KEY" in caught.value.hint


async def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError) as caught:
        await Models().respond(asking(model="openai:gpt-x"))
    assert caught.value.hint == "pip install cortex-durable[openai]"


@pytest.mark.parametrize(
    "table, message",
    [
        ('x = {kind = "azure"}', "models.x.kind is 'azure'"),
        ('x = {base_url = "http://h"}', "models.x.kind is missing"),
        ('x = {kind = "openai"}', "models.x has neither base_url nor api_key"),
        ('x = {kind = "openai", url = "http://h"}', "models.x: there is no field 'url'"),
        ('x = {kind = "google", base_url = "http://h", api = "chat"}', "models.x.api is only for"),
        ('x = {kind = "openai", base_url = "h:80"}', "models.x.base_url is not an address"),
        ('x = {kind = "openai", base_url = "http://u:pw@h"}', "models.x.base_url is not an"),
        ('x = {kind = "openai", api_key = "sk-1"}', "models.x.api_key: keys do not belong in"),
        ('x = {kind = "openai", api_key = {file = "k"}}', "models.x.api_key is not {env = …}"),
        ('openai = {kind = "google"}', "models.openai.kind is 'google', but openai is"),
        ('X = {kind = "openai"}', "models.X: the name of an endpoint is of a-z"),
        ("x = 3", "models.x is not a table"),
        ("x =", "setting models is no TOML"),
    ],
)
def test_a_wrong_endpoint_is_refused_in_one_line(table: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load({}, environ={"CORTEX_MODELS": table}, cwd=tmp_path)
    assert caught.value.message.startswith(f"CORTEX_MODELS: {message}")
    assert not {"sk-1", "pw"} & set(str(caught.value).split())


def test_a_working_directory_cannot_send_models_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "cortex.toml").write_text(TABLES.format(port=1))
    with pytest.raises(UsageError, match="setting models does not count in a file of the working"):
        load({}, environ={}, cwd=tmp_path)


def test_variables_with_keys_are_known_to_those_who_hide_them(tmp_path: Path) -> None:
    environ = {"CORTEX_MODELS": 'b = {kind = "openai", api_key = {env = "B_KEY"}}'}
    settings = load({}, environ=environ, cwd=tmp_path)
    assert settings.key_variables == ("B_KEY",)
    assert Settings().key_variables == ()


def test_the_doctor_names_endpoints_without_a_key_or_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("B_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    given = 'b = {kind = "openai", api_key = {env = "B_KEY"}}'
    package, key = of_models(Settings(models=model_endpoints(given)))
    assert key.found == "endpoint 'b' has no key: B_KEY is not set here"
    assert package.fix == "pip install cortex-durable[openai]"
    monkeypatch.undo()
    monkeypatch.setenv("B_KEY", "sk-secret")
    assert list(of_models(Settings(models=model_endpoints(given)))) == []


def test_the_guides_tables_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    block = GUIDE.read_text().partition("```toml\n")[2].partition("```")[0]
    user_file, _ = files(tmp_path)
    user_file.parent.mkdir(parents=True)
    user_file.write_text(block)
    local, team_b = load({}, environ={}, cwd=tmp_path).models
    assert (local.name, local.api, local.lacks) == ("local", "chat", ("images", "documents"))
    assert (team_b.name, team_b.key_variable) == ("team-b", "TEAM_B_OPENAI_KEY")
    models = Models(endpoints_of((local, team_b), {}))
    assert not models.capabilities("local:qwen3:8b").images
    assert models.capabilities("team-b:gpt-x").images


@pytest.mark.parametrize(
    "model, has_mode",
    [
        ("claude-sonnet-4-20250514", False),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-opus-4-1-20250805", True),
        ("claude-haiku-4-5", True),
        ("claude-sonnet-5", True),
        ("openai:gpt-4-turbo", False),
        ("openai:gpt-4.1", True),
        ("openai:gpt-4o", True),
    ],
)
def test_models_from_before_structured_outputs_give_them_to_a_tool(
    model: str, has_mode: bool
) -> None:
    assert Models().capabilities(model).output is has_mode


def test_a_key_is_in_no_text_of_an_endpoint() -> None:
    settings = model_endpoints('b = {kind = "openai", api_key = {env = "B_KEY"}}')
    (endpoint,) = endpoints_of(settings, {"B_KEY": "sk-secret"})
    assert isinstance(endpoint, Endpoint)
    assert endpoint.api_key == "sk-secret"
    assert "sk-secret" not in repr(endpoint)


def test_the_package_loads_no_provider() -> None:
    program = (
        "import sys, cortex, cortex.runtime.pod_parts, cortex.testing; "
        "print([each for each in ('anthropic', 'openai', 'google.genai', 'httpx2') "
        "if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
