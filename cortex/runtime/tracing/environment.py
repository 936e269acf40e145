"""The standard environment variables of OpenTelemetry, as far as a pod understands them.

Their specification wants wrong values to be ignored with a warning: they are set for all programs
of a machine, and traces are no reason not to start.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Self
from urllib.parse import unquote

import attrs

from cortex.domain.errors import InvalidValueError
from cortex.domain.tracing.sampling import DEFAULT, NAMES, Sampler
from cortex.http_client.poster import Target

LOCAL: Final = "http://localhost:4318"
PROTOCOL: Final = "http/protobuf"
TIMEOUT_MS: Final = 10_000
VARIABLES: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"address of the collector, such as `{LOCAL}`; none: no export",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers of each export, such as `api-key=VALUE,other=VALUE`",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "time of one export, in milliseconds [10000]",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "`gzip`, or none",
    "OTEL_EXPORTER_OTLP_PROTOCOL": f"only `{PROTOCOL}`",
    "OTEL_TRACES_EXPORTER": "`otlp`, or `none` to export nothing",
    "OTEL_LOGS_EXPORTER": "the same for log lines of jobs",
    "OTEL_TRACES_SAMPLER": f"which traces are exported: {', '.join(NAMES)} [{DEFAULT}]",
    "OTEL_TRACES_SAMPLER_ARG": "share of the traces for `traceidratio`, from 0 to 1 [1]",
    "OTEL_SERVICE_NAME": "name of the service [cortex]",
    "OTEL_RESOURCE_ATTRIBUTES": "attributes of the service, such as `service.namespace=shop`",
    "OTEL_SDK_DISABLED": "`true`: export nothing",
}
SHOWN_MAX: Final = 200
"""Characters of a value in a warning."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Signal(StrEnum):
    """What is exported, in the words of the variables' specification."""

    TRACES = "traces"
    LOGS = "logs"

    @property
    def path(self) -> str:
        return f"v1/{self}"

    def variables(self, what: str) -> tuple[str, str]:
        """Return the variable of this signal alone, and that of all signals."""
        return f"OTEL_EXPORTER_OTLP_{self.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"


@attrs.frozen(kw_only=True)
class ExportSettings:
    """Where spans or log lines go, and which spans."""

    target: Target
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    timeout_s: float = TIMEOUT_MS / 1000
    is_compressed: bool = False
    sampler: Sampler = attrs.field(factory=Sampler)
    service: str = "cortex"
    resource: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_environment(
        cls,
        environ: Mapping[str, str],
        *,
        warn: Callable[..., object],
        signal: Signal = Signal.TRACES,
    ) -> Self | None:
        """Return None if nothing is to be exported, or if that is impossible: then it warns."""
        names = _Names(environ, warn, signal)
        if not names.is_wanted:
            return None
        variable, protocol = names.chosen(*signal.variables("PROTOCOL"))
        if protocol not in ("", PROTOCOL):
            error = f"{variable} is {protocol!r}"
            warn(f"{signal} not exported", error=error, hint=f"set {PROTOCOL}")
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
            is_compressed=names.first(*signal.variables("COMPRESSION")) == "gzip",
            sampler=names.sampler() if signal is Signal.TRACES else Sampler(),
            service=names.first("OTEL_SERVICE_NAME") or named,
            resource=tuple(each for each in resource if each[0] != "service.name"),
        )


@attrs.frozen
class _Names:
    environ: Mapping[str, str]
    warn: Callable[..., object]
    signal: Signal

    @property
    def is_wanted(self) -> bool:
        if self.first("OTEL_SDK_DISABLED").lower() == "true":
            return False
        exporter = self.first(f"OTEL_{self.signal.upper()}_EXPORTER")
        if exporter:
            return "otlp" in map(str.strip, exporter.split(","))
        return bool(self.first(*self.signal.variables("ENDPOINT")))

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
        """Return where to post; None, with a warning, if the address is not usable."""
        whole, base = self.signal.variables("ENDPOINT")
        variable, given = self.chosen(whole, base)
        given = given or LOCAL
        url = given if variable == whole else f"{given.rstrip('/')}/{self.signal.path}"
        try:
            return Target.parse(url)
        except InvalidValueError:
            # What stands before an @ or behind a ? may be a secret.
            text = given.partition("?")[0][:SHOWN_MAX]
            shown = "a URL with a password" if "@" in given else repr(text)
            error = f"{variable} is {shown}, which is not usable"
            self.warn(f"{self.signal} not exported", error=error, hint=f"such as {LOCAL}")
            return None

    def headers(self) -> tuple[tuple[str, str], ...]:
        variable, given = self.chosen(*self.signal.variables("HEADERS"))
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
            self.warn(f"header of {self.signal} ignored", error=error, hint="such as api-key=KEY")
        return tuple(usable)

    def timeout_s(self) -> float:
        variable, text = self.chosen(*self.signal.variables("TIMEOUT"))
        if text and not (text.isascii() and text.isdecimal() and int(text) > 0):
            error = f"{variable} is {text!r}, not a number of milliseconds"
            self.warn(f"time-out of {self.signal} ignored", error=error)
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
