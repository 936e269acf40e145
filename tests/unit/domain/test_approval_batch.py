"""Which requests are decided together."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import BATCH_MAX, check_batch, varying
from cortex.domain.errors import UsageError
from tests.support.records.store_rows import an_approval


def a_row(number: int = 1, **fields: Any) -> Approval:
    defaults: dict[str, Any] = {
        "id": UUID(int=number),
        "tool": "mail",
        "key": f"{number} mail approval",
        "job_type": "run_agent",
        "risk": "MED",
        "effect": "sends mail",
        "policy": "mail asks",
        "arguments": {"to": f"{number}@b.eu", "text": "hi"},
    }
    return an_approval(**defaults | fields)


def test_requests_of_one_shape_go_together() -> None:
    rows = [a_row(n) for n in range(BATCH_MAX)]
    check_batch(rows)
    assert varying(rows) == ["to"]


def test_single_request_needs_no_matching_shape() -> None:
    check_batch([a_row(risk="CRITICAL")])


@pytest.mark.parametrize(
    "fields, output",
    [
        ({"tool": "refund"}, "of different tools: mail and refund"),
        ({"arguments": {"to": "a"}}, "of different argument names: text, to and to"),
        ({"policy": "other"}, "of different policies"),
        ({"risk": "LOW"}, "of different policies"),
        ({"effect": None}, "of different policies"),
        ({"risk": "HIGH"}, "is HIGH: it must be decided alone"),
        ({"tool": None}, "of different tools"),
    ],
)
def test_batch_of_different_shapes_is_refused(fields: dict[str, Any], output: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_batch([a_row(), a_row(2), a_row(3, **fields)])
    assert output in caught.value.message


def test_batch_over_its_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="more than the 50"):
        check_batch([a_row(n) for n in range(BATCH_MAX + 1)])


def test_gates_in_code_go_together_by_their_step() -> None:
    check_batch([a_row(tool=None, key="ship"), a_row(2, tool=None, key="ship")])
    with pytest.raises(UsageError):
        check_batch([a_row(tool=None, key="ship"), a_row(2, tool=None, key="sell")])


def test_types_count_as_differences() -> None:
    rows = [a_row(arguments={"n": value}) for value in (1, 1.0)]
    assert varying(rows) == ["n"]
