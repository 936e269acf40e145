"""The limits of each scope, and the error for an override beyond them."""

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.timeouts import TIMEOUTS, check_timeout


@pytest.mark.parametrize(
    "scope, default_s, hard_s",
    [
        ("step", 600, 900),
        ("llm_call", 300, 450),
        ("tool_call", 120, 600),
    ],
)
def test_each_scope_has_its_figures(scope: str, default_s: float, hard_s: float) -> None:
    assert (TIMEOUTS[scope].default_s, TIMEOUTS[scope].hard_s) == (default_s, hard_s)


@pytest.mark.parametrize(
    "scope, default_s",
    [
        ("llm_idle", 60),
        ("llm_connect", 30),
    ],
)
def test_inner_limits_have_their_defaults(scope: str, default_s: float) -> None:
    assert TIMEOUTS[scope].default_s == default_s


def test_no_default_is_beyond_its_own_limit() -> None:
    assert all(0 < each.default_s <= each.hard_s for each in TIMEOUTS.values())


@pytest.mark.parametrize("scope", TIMEOUTS)
def test_the_hard_limit_itself_is_allowed(scope: str) -> None:
    check_timeout(scope, TIMEOUTS[scope].hard_s, "a")
    with pytest.raises(UsageError):
        check_timeout(scope, TIMEOUTS[scope].hard_s + 1, "a")


@pytest.mark.parametrize("value", [0, -1, 901, float("nan"), float("inf")])
def test_timeout_out_of_bounds_is_refused_with_place_and_limit(value: float) -> None:
    with pytest.raises(UsageError) as caught:
        check_timeout("step", value, "step 'fetch': timeout")
    assert caught.value.message == (
        "step 'fetch': timeout must be above 0 and at most 900, "
        f"the hard limit of a step in seconds, got {value:g}"
    )
