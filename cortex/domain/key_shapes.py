"""Keys of others that this process never read as secrets, known by their shape and by their name.

A net, not a wall. `masked` is for text that people and models see, and for records of such text:
log lines, error messages, results of tools that a model called, receipts, documents on screens. It
is not for values that a job computes with, since a shape may be that of something harmless.

A rule is searched for only where one of its literals stands: text without any of them, which most
text is, costs one search for each literal, a microsecond or two in all.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs


@attrs.frozen
class Shape:
    """The shape of one kind of key."""

    name: str
    literals: tuple[str, ...]
    """One of them stands in each."""
    pattern: str
    example: str
    """A made-up key, in two parts that are none: for tests."""


SHAPES: Final = (
    Shape(
        "Anthropic key", ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{16,}", "sk-ant- api03-" + "aB3_" * 8
    ),
    Shape(
        "OpenAI key",
        ("sk-",),
        # With a digit: names of packages and branches begin so, too.
        r"\bsk-(?!ant-)(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,}",
        "sk- proj-" + "aB3x" * 10,
    ),
    Shape(
        "AWS key id",
        ("AKIA", "ASIA"),
        r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
        "AKIA " + "QWERTYUI23456723",
    ),
    Shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{40,255})",
        "ghp_ " + "aB3x" * 9,
    ),
    Shape("GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}", "glpat- " + "aB3x" * 5),
    Shape(
        "Slack token",
        ("xox", "xapp-"),
        r"\b(?:xox[abprs]-|xoxe[.-]|xapp-)[A-Za-z0-9.-]{10,}",
        "xoxb- 123456789012-abcdefghij",
    ),
    Shape(
        "Slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,}",
        "hooks.slack.com/ services/T0000000/B0000000/abcdefghijklmnop",
    ),
    Shape(
        "Stripe key",
        ("k_live_", "k_test_"),
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
        "sk_ live_" + "aB3x" * 6,
    ),
    Shape("webhook secret", ("whsec_",), r"\bwhsec_[A-Za-z0-9+/=_-]{24,}", "whsec_ " + "aB3x" * 8),
    Shape("Google key", ("AIza",), r"\bAIza[A-Za-z0-9_-]{35}", "AIza " + "aB3x" * 8 + "abc"),
    Shape(
        "Google token",
        ("ya29.", "GOCSPX-"),
        r"\b(?:ya29\.[A-Za-z0-9_.-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
        "ya29. " + "aB3x" * 8,
    ),
    Shape("npm token", ("npm_",), r"\bnpm_[A-Za-z0-9]{36}", "npm_ " + "aB3x" * 9),
    Shape("PyPI token", ("pypi-AgE",), r"\bpypi-AgE[A-Za-z0-9_-]{50,}", "pypi- AgE" + "aB3x" * 14),
    Shape(
        "SendGrid key",
        ("SG.",),
        r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}",
        "SG. " + "aB3x" * 5 + "." + "aB3x" * 10,
    ),
    Shape("Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,}", "hf_ " + "aB3x" * 9),
    Shape("Vault token", ("hvs.",), r"\bhvs\.[A-Za-z0-9_-]{24,}", "hvs. " + "aB3x" * 8),
    Shape(
        "DigitalOcean token",
        ("_v1_",),
        r"\bdo[oprs]{1,2}_v1_[a-f0-9]{64}",
        "dop_ v1_" + "ab12" * 16,
    ),
    Shape(
        "Docker token", ("dckr_pat_",), r"\bdckr_pat_[A-Za-z0-9_-]{20,}", "dckr_pat_ " + "aB3x" * 7
    ),
    Shape("Atlassian token", ("ATATT3",), r"\bATATT3[A-Za-z0-9_=-]{60,}", "ATATT3 " + "aB3x" * 20),
    Shape(
        "Shopify token",
        ("shpat_", "shpss_", "shpca_"),
        r"\bshp(?:at|ss|ca)_[a-fA-F0-9]{32}",
        "shpat_ " + "ab12" * 8,
    ),
    Shape(
        "age key",
        ("AGE-SECRET-KEY-1",),
        r"\bAGE-SECRET-KEY-1[A-Z0-9]{58}",
        "AGE-SECRET-KEY-1 " + "QP" * 29,
    ),
    Shape(
        "Azure key",
        ("AccountKey=", "SharedAccessKey="),
        r"(?<=Key=)[A-Za-z0-9+/]{40,}={0,2}",
        "Account Key=" + "aB3x" * 21 + "aB==",
    ),
    Shape(
        "JSON web token",
        ("eyJ",),
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        "eyJ hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    ),
    Shape(
        "private key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[^\"]){0,16384}"
        r"(?:-----END [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----)?",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    ),
    Shape(
        "password in a URL",
        ("://",),
        r"(?<=://)[^\s/?#@:'\"<>\[\]]{0,128}:(?!\*+@)[^\s/?#@'\"<>]{1,256}(?=@)",
        "postgres:// ana:hunter22@db.example/cortex",
    ),
    Shape(
        "password of Postgres",  # which may have a slash in it
        ("postgres://", "postgresql://"),
        r"(?:(?<=postgres://)|(?<=postgresql://))[^\s/:@'\"<>\[\]]{0,128}:(?!\*+@|[0-9]{1,5}[/?])"
        r"[^\s@'\"<>]{1,256}(?=@)",
        "postgres:// ana:hunter/22#x@db.example/cortex",
    ),
    Shape(
        "AWS secret key",
        ("ecret_access_key", "ECRET_ACCESS_KEY"),
        r"(?:(?<=ecret_access_key=)|(?<=ECRET_ACCESS_KEY=)|(?<=ecret_access_key = ))"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
        "AWS_S ECRET_ACCESS_KEY=" + "aB3x" * 10,
    ),
    Shape(
        "bearer token",
        ("earer ", "EARER "),
        r"(?<=[Bb]earer |BEARER )[A-Za-z0-9+/=_.~-]{16,}",
        "Bearer " + "aB3x" * 8,
    ),
    Shape(
        "basic credentials",
        ("uthorization: Basic ", "uthorization: basic "),
        r"(?<=uthorization: [Bb]asic )[A-Za-z0-9+/=]{8,}",
        "Author ization: Basic " + "aB3x" * 6,
    ),
)
"""Rules by prefix. Left out are kinds without one, such as 32 hexadecimal digits: commits and
digests would be masked."""
NAMES: Final = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "apikey", "authorization", "privatekey"}
    | {"accesstoken", "refreshtoken", "idtoken", "authtoken", "clientsecret", "secretkey"}
    | {"secretaccesskey", "sessiontoken", "proxyauthorization", "cookie", "setcookie", "xapikey"}
)
"""Of values in structured data, in lower case and without signs between the words."""
VALUE_CHARS_MIN: Final = 4
CHARS_MIN: Final = 15
"""Shorter text has no key, unless a password in a URL."""
_NO_LETTER: Final = re.compile(r"[^a-z0-9]+")
_MASKED: Final = "[masked "
_MARK: Final = re.compile(r"\[masked [^\[\]\n]{1,60}, \d+ characters\]")
_NAMED: Final = re.compile(
    r"password|passwd|passphrase|pwd|secret|key|token|authorization|cookie", re.IGNORECASE
)


_Marking = Callable[[re.Match[str]], str]
_GATES: Final = ("://", "_", "-", ".", "=", " ")


def _mark(name: str, value: str) -> str:
    return f"{_MASKED}{name}, {len(value)} characters]"


def _marking(name: str) -> _Marking:
    return lambda match: _mark(name, match[0])


def _gated() -> list[tuple[str, list[tuple[tuple[str, ...], re.Pattern[str], _Marking]]]]:
    """Group the rules by what stands in all their literals: most text lacks some of these."""
    groups: dict[str, list[tuple[tuple[str, ...], re.Pattern[str], _Marking]]] = {}
    for shape in SHAPES:
        gate = next((each for each in _GATES if all(each in one for one in shape.literals)), "")
        rule = shape.literals, re.compile(shape.pattern), _marking(shape.name)
        groups.setdefault(gate, []).append(rule)
    return list(groups.items())


_RULES: Final = _gated()


def masked(text: str) -> str:
    """Return text with a mark in place of each key: `[masked GitHub token, 40 characters]`.

    Idempotent; no mark has a character that JSON would escape.
    """
    if len(text) < CHARS_MIN and "://" not in text:
        return text
    for gate, rules in _RULES:
        if gate not in text:
            continue
        for literals, pattern, mark in rules:
            for literal in literals:
                if literal in text:
                    text = pattern.sub(mark, text)
                    break
    return text


def mask_in(text: str) -> str | None:
    """Return the first mark that stands in place of a key; None if there is none."""
    match = _MARK.search(text) if _MASKED in text else None
    return None if match is None else match[0]


def masked_value(value: Any) -> Any:
    """Return a JSON value whose texts are masked, and so are values with the name of a secret."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {
            key: _mark(str(key)[:40], each) if _is_named(key, each) else masked_value(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_value(each) for each in value]
    return value


def is_long(value: Any, chars_max: int) -> bool:
    """Return whether the texts of a JSON value have more characters in all."""
    left, count = [value], 0
    while left and count <= chars_max:
        each = left.pop()
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, Mapping):
            left += each.values()
            count += len(each)
        elif isinstance(each, list | tuple):
            left += each
            count += len(each)
    return count > chars_max


def _is_named(key: object, value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) >= VALUE_CHARS_MIN
        and isinstance(key, str)
        and is_secret_name(key)
        and not value.startswith(("[secret ", _MASKED, "env:", "file:"))
    )


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is one that nobody is to see."""
    return _NAMED.search(name) is not None and _NO_LETTER.sub("", name.lower()) in NAMES
