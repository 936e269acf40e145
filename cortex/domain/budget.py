"""Budgets as values: their limits, their names, and the most that a call may use."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from math import ceil
from typing import Final, Self, TypedDict
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import InvalidValueError, RejectedError, UsageError
from cortex.domain.model import CacheTtl, ModelRequest
from cortex.domain.option_check import check_whole
from cortex.domain.prices import PriceTable
from cortex.domain.usage import Usage

NEARLY: Final = Decimal("0.8")
"""Share of a limit from which it counts as nearly used up."""
LIMIT_MAX: Final = Decimal(10) ** 11
# What agents and shares of children may declare: larger amounts are typing errors.
USD_MIN: Final = 0.000001
USD_MAX: Final = 1_000_000
TOKENS_MAX: Final = 1_000_000_000_000
WAITING_PREFIX: Final = "budget:"
"""Prefix of the name of a budget that a job waits for."""

SMALL_USD: Final = Decimal("0.01")
"""Below it an amount is shown by its first digits: $0.00031, and not $0.0003."""

PRIORITY: Final = "priority"
"""The service tier that OpenAI and Google make dearer."""

LIKELY_BYTES_PER_TOKEN: Final = 4.0
"""English prose and JSON; used to book a lost call."""
LEAST_BYTES_PER_TOKEN: Final = 2.0
"""Code and scripts other than Latin stay above it, only noise does not; for the room reserved."""
IMAGE_TOKENS_MAX: Final = 5_000
"""What the API counts for the largest image: it scales larger ones down."""
IMAGE_TOKENS_LIKELY: Final = 1_600
PAGE_TOKENS_MAX: Final = 8_000
"""Of a PDF: the API reads the text of a page, up to 3,000 tokens, and sees it as an image."""
PAGE_TOKENS_LIKELY: Final = 3_600
PAGES_MAX: Final = 100
PAGE_BYTES_LIKELY: Final = 50_000
"""Of a PDF that hides the number of its pages; so is the next one."""
PAGE_BYTES_LEAST: Final = 2_000


class Scope(StrEnum):
    """Whose calls a budget counts."""

    JOB = "job"
    AGENT = "agent"
    TENANT = "tenant"


class Unit(StrEnum):
    """What it counts: money, or tokens of every kind."""

    USD = "usd"
    TOKENS = "tokens"


class Period(StrEnum):
    """What shares the limit: one lineage of jobs, or all calls of one UTC day."""

    RUN = "run"
    DAY = "day"


@attrs.frozen(kw_only=True)
class Budget:
    """The calls that a limit applies to; there is one limit for each."""

    scope: Scope
    subject: str
    """Name of the agent or of the tenant; for a job, the id of the first one of its lineage."""
    unit: Unit
    period: Period

    @property
    def name(self) -> str:
        """The name for people: `agent:researcher:usd:day`."""
        return f"{self.scope}:{self.subject}:{self.unit}:{self.period}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the budget of that name. Raises `UsageError`; a subject may itself have colons."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise UsageError(
                f"{name!r} is not the name of a budget",
                hint="for example agent:researcher:usd:day; list them: cortex budgets ls",
            )
        scope, subject, unit, period = match.groups()
        if scope == Scope.JOB and not _JOB_ID.fullmatch(subject):
            raise UsageError(
                f"{name!r} is not the name of a budget", hint="a job's has its whole id in it"
            )
        return cls(scope=Scope(scope), subject=subject, unit=Unit(unit), period=Period(period))


@attrs.frozen(kw_only=True)
class OwnBudget:
    """A budget of one job."""

    name: str
    unit: Unit
    limit_amount: Decimal
    spent: Decimal
    share_of: UUID | None
    """The job that gave it to this one, its child; None: people set it."""


class BudgetShare(TypedDict, total=False):
    """How much a child may spend, in one unit or in both: `{"usd": 0.50}`."""

    usd: float | Decimal
    tokens: int


def checked_share(share: object) -> dict[str, Decimal]:
    """Return a child's share by its unit. Raises `UsageError` that names what is wrong with it."""
    if not isinstance(share, Mapping) or not share:
        raise UsageError(
            f"budget {share!r:.80} is not an amount by its unit",
            hint='such as budget={"usd": 0.50}, or {"tokens": 20_000}',
        )
    return {str(unit): _share_amount(unit, amount) for unit, amount in share.items()}


def _share_amount(unit: object, amount: object) -> Decimal:
    if unit == Unit.USD:
        is_number = isinstance(amount, int | float | Decimal) and not isinstance(amount, bool)
        exact = Decimal(str(amount)) if is_number else Decimal("NaN")
        if exact.is_finite() and Decimal(str(USD_MIN)) <= exact <= USD_MAX:
            return exact
        raise UsageError(f"budget usd {amount!r:.60} is not a number from 0.000001 to {USD_MAX:,}")
    if unit == Unit.TOKENS:
        check_whole("budget tokens", amount, 1, TOKENS_MAX)
        return Decimal(str(amount))
    hint = "a share is for the whole run of the child" if unit == "per" else "usd or tokens"
    raise UsageError(f"budget has no unit {unit!r:.80}", hint=hint)


_NAME: Final = re.compile(
    rf"({'|'.join(Scope)}):(.{{1,100}}):({'|'.join(Unit)}):({'|'.join(Period)})", re.DOTALL
)
_JOB_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@attrs.frozen(kw_only=True)
class Estimate:
    """The most that a call may use, before it is made."""

    tokens: int
    """At most: this much room is reserved."""
    cost_usd: Decimal | None
    """At most; None if the model's price is unknown."""
    input_tokens: int
    """Likely tokens of the prompt: booked when the call is lost."""
    input_usd: Decimal | None


def estimate_of(request: ModelRequest, prices: PriceTable) -> Estimate:
    """Return the most that a call uses, and what its prompt is likely to use.

    The room is the worst case: a prompt that is written to the cache whole, and the longest
    permitted answer. So concurrent calls can never use more than their room together, and a budget
    is overspent by no more than the one call that was admitted with less room left. Raises
    `InvalidValueError` for a request that is not JSON, such as half of a surrogate pair.
    """
    try:
        body = orjson.dumps(request.to_json())
    except TypeError as error:
        message = f"the request to model {request.model!a} cannot be sent: {error}"
        raise InvalidValueError(message) from error
    files = _Files.of(request.messages)
    text_bytes = len(body) - files.data_bytes
    most = ceil(text_bytes / LEAST_BYTES_PER_TOKEN) + files.tokens_max
    likely = ceil(text_bytes / LIKELY_BYTES_PER_TOKEN) + files.tokens_likely
    is_kept = request.cache is CacheTtl.HOUR or b'"ttl":"1h"' in body
    for_an_hour = most if is_kept else 0
    extra = request.options.extra
    is_priority = PRIORITY in (extra.get("service_tier"), extra.get("serviceTier"))
    tier = PRIORITY if is_priority else "batch" if request.batch else ""
    dearest = [
        prices.cost(request.model, usage)
        for usage in (
            Usage(
                cache_write_tokens=most,
                cache_write_1h_tokens=for_an_hour,
                output_tokens=request.max_tokens,
                service_tier=tier,
            ),
            Usage(input_tokens=most, output_tokens=request.max_tokens, service_tier=tier),
        )
    ]
    return Estimate(
        tokens=most + request.max_tokens,
        cost_usd=max((each for each in dearest if each is not None), default=None),
        input_tokens=likely,
        input_usd=prices.cost(request.model, Usage(input_tokens=likely, service_tier=tier)),
    )


def usage_of_uncounted(content: Sequence[Mapping[str, object]], estimate: Estimate) -> Usage:
    """Return the likely usage of a call whose server counted nothing; no call is booked as free."""
    written = ceil(len(orjson.dumps(list(content))) / LIKELY_BYTES_PER_TOKEN)
    return Usage(input_tokens=estimate.input_tokens, output_tokens=written, is_estimated=True)


def likely_tokens(request: ModelRequest) -> int:
    """Return how many tokens the prompt of a request is likely to have."""
    files = _Files.of(request.messages)
    text_bytes = len(orjson.dumps(request.to_json())) - files.data_bytes
    return ceil(text_bytes / LIKELY_BYTES_PER_TOKEN) + files.tokens_likely


def likely_file_tokens(blocks: Sequence[Mapping[str, object]]) -> int:
    """Return how many tokens the images and documents of a message are likely to have."""
    return _Files.of(blocks).tokens_likely


@attrs.define
class _Files:
    """The images and documents of a request."""

    data_bytes: int = 0
    """Of base64 text in the request itself."""
    tokens_max: int = 0
    tokens_likely: int = 0

    @classmethod
    def of(cls, messages: object) -> Self:
        found = cls()
        found._add(messages)
        return found

    def _add(self, content: object) -> None:
        if not isinstance(content, Sequence) or isinstance(content, str):
            return
        for block in content:
            if not isinstance(block, Mapping):
                continue
            source = block.get("source")
            if block.get("type") not in ("image", "document") or not isinstance(source, Mapping):
                self._add(block.get("content"))
                continue
            data = source.get("data")
            size = len(data) if isinstance(data, str) else 0
            if source.get("type") != "text":
                self.data_bytes += size
            if block["type"] == "image":
                self.tokens_max += IMAGE_TOKENS_MAX
                self.tokens_likely += IMAGE_TOKENS_LIKELY
            elif source.get("type") != "text":
                self._add_pages(source, size)

    def _add_pages(self, source: Mapping[str, object], data_bytes: int) -> None:
        pages, size = source.get("pages"), source.get("bytes")
        if isinstance(pages, int) and pages > 0:
            self.tokens_max += pages * PAGE_TOKENS_MAX
            self.tokens_likely += pages * PAGE_TOKENS_LIKELY
            return
        file_bytes = size if isinstance(size, int) else data_bytes * 3 // 4
        most = min(PAGES_MAX, ceil(file_bytes / PAGE_BYTES_LEAST))
        self.tokens_max += most * PAGE_TOKENS_MAX
        likely = min(PAGES_MAX, ceil(file_bytes / PAGE_BYTES_LIKELY))
        self.tokens_likely += likely * PAGE_TOKENS_LIKELY


def spent_words(name: str, spent: Decimal, limit: Decimal, unit: Unit) -> str:
    return f"budget {name} is spent: {worded(spent, unit)} of {worded(limit, unit)}"


def unpriced(model: str, name: str) -> RejectedError:
    """Return the error of a call whose cost a budget of money cannot count."""
    return RejectedError(
        f"the price of model {model!r} is unknown, and budget {name} counts money",
        hint=f"set the price of {model!r} in the file of the setting `prices`, "
        "or limit tokens instead",
    )


def refused_share(
    step: str, share: Decimal, above: str, limit: Decimal, unit: Unit
) -> RejectedError:
    """Return the error of a share that is larger than a budget above it, as the database does."""
    return RejectedError(
        f'step "{step}" gives a child {share} {unit}, more than the {limit} {unit} that its parent '
        "may spend",
        hint=f"give it less, or raise the budget above it: cortex budgets raise {above} "
        f"--to {share} --reason TEXT",
    )


def worded(amount: Decimal, unit: Unit) -> str:
    """Return an amount for people: $1.02, or 12,000 tokens."""
    if unit is Unit.TOKENS:
        return "1 token" if amount == 1 else f"{amount:,.0f} tokens"
    is_exact_to_cents = amount == round(amount, 2)
    if is_exact_to_cents or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= SMALL_USD else f"${amount:.2g}"
