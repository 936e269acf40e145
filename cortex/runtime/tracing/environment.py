"""The standard environment variables of OpenTelemetry, as far as a pod understands them.

Their specification wants wrong values to be ignored with a warning: they are set for all programs
of a machine, and traces are no reason not to start.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Self
from urllib.parse import unquote

import attrs

from cortex.domain.errors import InvalidValueError
from cortex.domain.tracing.sampling import DEFAULT, NAMES, Sampler
from cortex.http_client.poster import Target

LOCAL: Final = "http://localhost:4318"
PATH: Final = "v1/traces"
PROTOCOL: Final = "http/protobuf"
TIMEOUT_MS: Final = 10_000
VARIABLES: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"address of the collector, such as `{LOCAL}`; none: no traces",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers of each export, such as `api-key=VALUE,other=VALUE`",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "time of one export, in milliseconds [10000]",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "`gzip`, or none",
    "OTEL_EXPORTER_OTLP_PROTOCOL": f"only `{PROTOCOL}`",
    "OTEL_TRACES_EXPORTER": "`otlp`, or `none` to export nothing",
    "OTEL_TRACES_SAMPLER": f"which traces are exported: {', '.join(NAMES)} [{DEFAULT}]",
    "OTEL_TRACES_SAMPLER_ARG": "share of the traces for `traceidratio`, from 0 to 1 [1]",
    "OTEL_SERVICE_NAME": "name of the service [cortex]",
    "OTEL_RESOURCE_ATTRIBUTES": "attributes of the service, such as `service.namespace=shop`",
    "OTEL_SDK_DISABLED": "`true`: export nothing",
}
SHOWN_MAX: Final = 200
"""Characters of a value in a warning."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@attrs.frozen(kw_only=True)
class ExportSettings:
    """Where spans go, and which."""

    target: Target
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    timeout_s: float = TIMEOUT_MS / 1000
    is_compressed: bool = False
    sampler: Sampler = attrs.field(factory=Sampler)
    service: str = "cortex"
    resource: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_environment(
        cls, environ: Mapping[str, str], *, warn: Callable[..., object]
    ) -> Self | None:
        """Return None if nothing is to be exported, or if that is impossible: then it warns."""
        names = _Names(environ, warn)
        if not names.is_wanted:
            return None
        variable, protocol = names.chosen(
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        if protocol not in ("", PROTOCOL):
            error = f"{variable} is {protocol!r}"
            warn("traces not exported", error=error, hint=f"set {PROTOCOL}")
            return None
        target = names.target()
        if target is None:
            return None
        resource = names.pairs("OTEL_RESOURCE_ATTRIBUTES")
        named = dict(resource).get("service.name", "cortex")
        return cls(
            target=target,
            headers=names.headers(),
            timeout_s=names.timeout_s(),
            is_compressed=names.first(
                "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"
            )
            == "gzip",
            sampler=names.sampler(),
            service=names.first("OTEL_SERVICE_NAME") or named,
            resource=tuple(each for each in resource if each[0] != "service.name"),
        )


@attrs.frozen
class _Names:
    environ: Mapping[str, str]
    warn: Callable[..., object]

    @property
    def is_wanted(self) -> bool:
        if self.first("OTEL_SDK_DISABLED").lower() == "true":
            return False
        exporter = self.first("OTEL_TRACES_EXPORTER")
        if exporter:
            return "otlp" in map(str.strip, exporter.split(","))
        places = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return bool(self.first(*places))

    def chosen(self, *names: str) -> tuple[str, str]:
        """Return the first of these that is set, and its text; an empty one counts as unset."""
        texts = ((name, self.environ.get(name, "").strip()) for name in names)
        return next((each for each in texts if each[1]), (names[-1], ""))

    def first(self, *names: str) -> str:
        return self.chosen(*names)[1]

    def pairs(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Parse `a=b,c=d` with percent-encoded values."""
        words = [word.partition("=") for word in self.first(*names).split(",") if word.strip()]
        return tuple((key.strip(), unquote(text.strip())) for key, sign, text in words if sign)

    def target(self) -> Target | None:
        """Return where spans are posted; None, with a warning, if the address is not usable."""
        whole, base = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
        variable, given = self.chosen(whole, base)
        given = given or LOCAL
        url = given if variable == whole else f"{given.rstrip('/')}/{PATH}"
        try:
            return Target.parse(url)
        except InvalidValueError:
            # What stands before an @ or behind a ? may be a secret.
            text = given.partition("?")[0][:SHOWN_MAX]
            shown = "a URL with a password" if "@" in given else repr(text)
            error = f"{variable} is {shown}, which is not usable"
            self.warn("traces not exported", error=error, hint=f"such as {LOCAL}")
            return None

    def headers(self) -> tuple[tuple[str, str], ...]:
        names = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
        variable, given = self.chosen(*names)
        usable: list[tuple[str, str]] = []
        for number, word in enumerate(filter(str.strip, given.split(",")), 1):
            name, sign, text = word.partition("=")
            name, text = name.strip(), unquote(text.strip())
            is_named = bool(sign and _HEADER_NAME.fullmatch(name))
            if is_named and text.isascii() and text.isprintable():
                usable.append((name, text))
                continue
            # Without the text: it is a credential. So may be what only seems to be a name.
            shown = repr(name[:SHOWN_MAX]) if is_named else f"pair {number}"
            error = f"{variable}: {shown} cannot be sent as an HTTP header"
            self.warn("header of traces ignored", error=error, hint="such as api-key=KEY")
        return tuple(usable)

    def timeout_s(self) -> float:
        names = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        variable, text = self.chosen(*names)
        if text and not (text.isascii() and text.isdecimal() and int(text) > 0):
            error = f"{variable} is {text!r}, not a number of milliseconds"
            self.warn("time-out of traces ignored", error=error)
            text = ""
        return int(text or TIMEOUT_MS) / 1000

    def sampler(self) -> Sampler:
        name, argument = self.first("OTEL_TRACES_SAMPLER"), self.first("OTEL_TRACES_SAMPLER_ARG")
        sampler = Sampler.named(name or DEFAULT, argument)
        if sampler is None:
            error = f"OTEL_TRACES_SAMPLER {name!r} with argument {argument!r}"
            self.warn("sampler of traces ignored", error=error, hint=f"known: {', '.join(NAMES)}")
            return Sampler()
        return sampler
