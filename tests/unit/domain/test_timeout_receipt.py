"""Which way on is recommended after a time-out."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.timeouts import (
    Choice,
    FinalAction,
    TimeoutReceipt,
    clipped,
    recommended_choice,
)
from tests.support.records.receipts import (
    BEFORE,
    BEGAN,
    a_change,
    a_receipt,
    a_work_tree,
    an_artefact,
)


@pytest.mark.parametrize(
    "receipt, is_clean, choice",
    [
        (a_receipt(), True, Choice.RETRY_STEP),
        (a_receipt(work_trees=(a_work_tree(),)), True, Choice.RETRY_STEP),
        (a_receipt(artefacts=(an_artefact(),)), False, Choice.DISCARD_AND_RETRY),
        (a_receipt(problem="not looked at"), False, Choice.DISCARD_AND_RETRY),
        (
            a_receipt(work_trees=(a_work_tree(problem="git took too long"),)),
            False,
            Choice.RETRY_STEP,
        ),
        (a_receipt(work_trees=(a_work_tree(a_change()),)), False, Choice.RETRY_STEP),
        (
            a_receipt(work_trees=(a_work_tree(a_change(changed_at=BEGAN)),)),
            False,
            Choice.RETRY_STEP,
        ),
        (
            a_receipt(work_trees=(a_work_tree(a_change(changed_at=None)),)),
            False,
            Choice.RETRY_STEP,
        ),
        (
            a_receipt(artefacts=(attrs.evolve(an_artefact(), is_new=False),)),
            False,
            Choice.RETRY_STEP,
        ),
        (
            a_receipt(work_trees=(a_work_tree(a_change(changed_at=BEFORE)),)),
            False,
            Choice.RETRY_STEP,
        ),
        (
            a_receipt(
                work_trees=(a_work_tree(a_change(changed_at=BEFORE)), a_work_tree(a_change()))
            ),
            False,
            Choice.RETRY_STEP,
        ),
        (
            a_receipt(
                work_trees=(a_work_tree(a_change(changed_at=BEFORE)),), artefacts=(an_artefact(),)
            ),
            False,
            Choice.RETRY_STEP,
        ),
    ],
)
def test_receipt_recommends_a_way_on(
    receipt: TimeoutReceipt, is_clean: bool, choice: Choice
) -> None:
    assert (receipt.is_clean, recommended_choice(receipt)) == (is_clean, choice)


def test_an_attempt_outlives_calls_that_were_tried_again() -> None:
    assert {action for action in FinalAction if not action.ended_attempt} == {
        FinalAction.RETRIED_CALL,
        FinalAction.TOLD_MODEL,
    }


@given(st.text(st.characters(codec=None, exclude_categories=[])), st.integers(3, 40))
def test_a_clipped_text_fits_and_can_be_stored(text: str, max_bytes: int) -> None:
    found = clipped(text, max_bytes)
    assert len(found.encode()) <= max_bytes
    assert "\0" not in found


def test_a_short_text_stays_as_it_is() -> None:
    assert clipped("zwölf", 6) == "zwölf"
    assert clipped("zwölf", 5) == "zw…"
    assert clipped("a\0b\ud800", 100) == "a\ufffdb?"
