"""State of the inbox, without a screen: the approval in front, the batch, and versions."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.approvals.approval import Approval, ApprovalHead
from cortex.domain.approvals.vote import BATCH_MAX
from cortex.store.approvals import InboxRow
from cortex_tui.model.approvals_state import ApprovalsState, Edit, SubjectChange, subject_of
from cortex_tui.model.inbox import Inbox, Tab
from tests.support.records.store_rows import NOW, an_approval, arguments_of


def request(number: int, **fields: Any) -> Approval:
    """Return a request that expires after those with lower numbers."""
    expires_at = NOW + timedelta(hours=number)
    return an_approval(**{"id": UUID(int=number), "expires_at": expires_at} | fields)


def listed(approval: Approval) -> InboxRow:
    head = {each.name: getattr(approval, each.name) for each in attrs.fields(ApprovalHead)}
    return InboxRow(**head, is_own=False, has_agreed=False)


def state_of(*approvals: Approval) -> ApprovalsState:
    """Return an inbox with these requests, the first one in front."""
    state = ApprovalsState(inbox=Inbox())
    state.inbox.window.resize(10)
    state.inbox.take(map(listed, approvals))
    state.bring_to_front(is_flowing=False)
    return state


def test_only_another_request_in_front_is_a_change() -> None:
    state = state_of(request(1), request(2))
    state.update(subject_of([request(1)]))
    state.is_raw, state.edit = True, Edit(text="{}", changes=())
    assert not state.bring_to_front(is_flowing=True)
    assert state.is_raw
    assert not state.is_flowing
    state.inbox.window.move_to(1)
    assert state.bring_to_front(is_flowing=True)
    assert list(state.in_front) == [UUID(int=2)]
    assert attrs.evolve(state, in_front=(), is_flowing=False) == ApprovalsState(inbox=state.inbox)
    assert state.is_flowing


def test_batch_is_ordered_like_the_list() -> None:
    state = state_of(request(1), request(2), request(3))
    state.inbox.window.move_to(2)
    assert state.toggle_mark()
    state.inbox.window.move_to(0)
    assert state.toggle_mark()
    assert state.toggle_batch()
    assert state.bring_to_front(is_flowing=False)
    assert list(state.in_front) == [UUID(int=1), UUID(int=3)]
    assert state.toggle_batch()
    assert state.bring_to_front(is_flowing=False)
    assert list(state.in_front) == [UUID(int=1)]


@pytest.mark.parametrize("count", [0, 1, BATCH_MAX + 1])
def test_too_few_or_too_many_marks_make_no_batch(count: int) -> None:
    state = state_of(*(request(n) for n in range(1, BATCH_MAX + 2)))
    state.inbox.marked |= {UUID(int=n) for n in range(1, count + 1)}
    assert not state.toggle_batch()
    assert list(state.batch) == []


def test_decided_request_cannot_be_marked() -> None:
    state = state_of(request(1))
    state.inbox.to_tab(Tab.DECIDED)
    state.inbox.take([listed(request(1, status="DENIED"))])
    assert state.inbox.focused is not None
    assert not state.toggle_mark()
    assert state.inbox.marked == set()


def test_marks_are_cleared_with_their_batch() -> None:
    state = state_of(request(1), request(2))
    state.inbox.marked |= {UUID(int=1), UUID(int=2)}
    assert state.toggle_batch()
    assert state.unmark() == 2
    assert list(state.batch) == []
    assert state.inbox.marked == set()


def test_a_decided_batch_is_left_and_another_one_stays() -> None:
    state = state_of(request(1), request(2))
    state.inbox.marked |= {UUID(int=1), UUID(int=2)}
    assert state.toggle_batch()
    state.drop_decided([UUID(int=1)])
    assert list(state.batch) == [UUID(int=1), UUID(int=2)]
    assert state.inbox.marked == {UUID(int=2)}
    state.drop_decided([UUID(int=1), UUID(int=2)])
    assert list(state.batch) == []


Change = Callable[[Approval], Approval]

CHANGES: dict[SubjectChange, Change] = {
    SubjectChange.NONE: lambda it: it,
    SubjectChange.ARGUMENTS: lambda it: attrs.evolve(it, **arguments_of({"amount": 9})),
    SubjectChange.STATUS: lambda it: attrs.evolve(it, status="DENIED"),
}


@pytest.mark.parametrize("change, changed", CHANGES.items())
def test_update_reports_how_the_request_changed(change: SubjectChange, changed: Change) -> None:
    state, edit = state_of(request(1)), Edit(text="{}", changes=())
    assert state.update(subject_of([request(1)])) is SubjectChange.FIRST
    state.edit = edit
    assert state.update(subject_of([changed(request(1))])) is change
    assert state.edit is (None if change is SubjectChange.ARGUMENTS else edit)


def test_state_is_fresh_until_the_list_shows_another_version() -> None:
    state = state_of(request(1))
    assert not state.is_fresh
    state.update(subject_of([request(1)]))
    assert state.is_fresh
    state.inbox.take([listed(request(1, status="DENIED"))])
    assert not state.is_fresh
    state.inbox.take([])
    assert state.is_fresh, "what is not listed any more cannot be compared"


def test_moved_cursor_stops_seeking() -> None:
    state = state_of(request(1))
    state.wants_first = True
    state.inbox.seek(UUID(int=9))
    assert state.is_seeking
    state.stay()
    assert not state.is_seeking


def test_key_before_the_first_read_does_not_stop_seeking() -> None:
    state = ApprovalsState(inbox=Inbox(), wants_first=True)
    state.stay()
    assert state.is_seeking
