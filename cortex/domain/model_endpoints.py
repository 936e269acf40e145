"""Addresses of models besides the providers' own: the tables `[models.NAME]` of the settings."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, cast, get_args

from attrs import frozen

from cortex.domain.errors import UsageError

Kind = Literal["anthropic", "openai", "google"]
OpenAIApi = Literal["responses", "chat"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
APIS: Final[tuple[OpenAIApi, ...]] = get_args(OpenAIApi)
ABILITIES: Final = ("tools", "images", "documents", "output")
"""What a server may lack: `output` is a mode for JSON of a given schema."""
FIELDS: Final = ("kind", "base_url", "api_key", "api", "lacks")
ENDPOINTS_MAX: Final = 32
URL_CHARS_MAX: Final = 2_000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_URL: Final = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
_KEY_HINT: Final = 'name the variable that holds it: api_key = {env = "NAME"}'


@frozen(kw_only=True)
class ModelEndpoint:
    """One address. Its models are called NAME:MODEL."""

    name: str
    kind: Kind
    base_url: str | None = None
    key_variable: str | None = None
    """The variable of the environment with the key; None: it needs none."""
    api: OpenAIApi = "responses"
    """Which of OpenAI's two APIs it speaks."""
    lacks: tuple[str, ...] = ()
    """What its models cannot do, of `ABILITIES`."""

    @property
    def is_own(self) -> bool:
        """It changes a provider's own endpoint."""
        return self.name in KINDS


def model_endpoints(given: object) -> tuple[ModelEndpoint, ...]:
    """Return the endpoints of a table, or of TOML text such as a variable has.

    Raises `UsageError` that names the table and the field, and shows no key.
    """
    if isinstance(given, str):
        import tomllib  # noqa: PLC0415 -- most commands need none

        try:
            given = tomllib.loads(given)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                "setting models is no TOML",
                hint='such as: local = {kind = "openai", base_url = "http://127.0.0.1:11434/v1"}',
            ) from error
    if isinstance(given, tuple) and all(isinstance(each, ModelEndpoint) for each in given):
        return given
    if not isinstance(given, Mapping):
        raise TypeError
    if len(given) > ENDPOINTS_MAX:
        raise UsageError(f"setting models has {len(given)} endpoints, at most {ENDPOINTS_MAX}")
    return tuple(_endpoint(str(name), each) for name, each in given.items())


def check_tools(
    model: str, tools: Collection[str], endpoints: Iterable[ModelEndpoint], *, what: str
) -> None:
    """Raise `UsageError` if a model is known to take no tools, and it is to have some."""
    prefix = model.partition(":")[0]
    if tools and any(each.name == prefix and "tools" in each.lacks for each in endpoints):
        raise UsageError(
            f"{what} has tools, and model {model!r} takes none",
            hint=f"choose another model, or correct lacks of [models.{prefix}]",
        )


def _endpoint(name: str, table: Any) -> ModelEndpoint:
    what = f"models.{name[:40]}"
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{what}: the name of an endpoint is of a-z, 0-9, - and _, and begins with a letter"
        )
    if not isinstance(table, Mapping):
        raise UsageError(f"{what} is not a table", hint=f"its fields are {', '.join(FIELDS)}")
    if unknown := [str(each)[:40] for each in table if each not in FIELDS]:
        raise UsageError(
            f"{what}: there is no field {unknown[0]!r}", hint=f"its fields are {', '.join(FIELDS)}"
        )
    kind = _one_of(f"{what}.kind", table.get("kind"), KINDS)
    api = _one_of(f"{what}.api", table.get("api", APIS[0]), APIS)
    if name in KINDS and name != kind:
        raise UsageError(
            f"{what}.kind is {kind!r}, but {name} is a provider's own name", hint="choose another"
        )
    if "api" in table and kind != "openai":
        raise UsageError(f"{what}.api is only for endpoints of kind openai")
    endpoint = ModelEndpoint(
        name=name,
        kind=cast("Kind", kind),
        base_url=_base_url(what, table.get("base_url")),
        key_variable=_key_variable(what, table.get("api_key")),
        api=cast("OpenAIApi", api),
        lacks=_lacks(what, table.get("lacks", [])),
    )
    if not endpoint.is_own and endpoint.base_url is None and endpoint.key_variable is None:
        raise UsageError(f"{what} has neither base_url nor api_key", hint="give one of them")
    return endpoint


def _one_of(what: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        shown = "missing" if value is None else f"{str(value)[:40]!r}"
        raise UsageError(f"{what} is {shown}", hint=f"one of {', '.join(known)}")
    return str(value)


def _lacks(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{what}.lacks is not a list", hint=f"of {', '.join(ABILITIES)}")
    return tuple(_one_of(f"{what}.lacks", each, ABILITIES) for each in value)


def _base_url(what: str, value: Any) -> str | None:
    if value is None:
        return None
    is_url = isinstance(value, str) and len(value) <= URL_CHARS_MAX and _URL.fullmatch(value)
    if not is_url:
        # Not shown: somebody may have written a key into it.
        raise UsageError(
            f"{what}.base_url is not an address without user, query and fragment",
            hint="such as http://127.0.0.1:11434/v1",
        )
    return str(value).rstrip("/")


def _key_variable(what: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        raise UsageError(f"{what}.api_key: keys do not belong in settings", hint=_KEY_HINT)
    name = value.get("env") if isinstance(value, Mapping) and set(value) == {"env"} else None
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise UsageError(f"{what}.api_key is not {{env = …}}", hint=_KEY_HINT)
    return name
