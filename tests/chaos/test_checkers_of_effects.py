"""Each way in which effects, answers and decisions can be sick: a healthy run, spoilt."""

import pytest
from attrs import evolve

from chaos.checkers import (
    i03_effects_once,
    i04_one_owner,
    i07_intents,
    i15_whole_answers,
    i18_decided_once,
    i34_agents,
)
from chaos.checkers.verdict import Checker, Result
from chaos.evidence import Application
from tests.support.evidence import Run, at, uuid
from tests.support.healthy_run import healthy_run
from tests.support.sick import Sicknesses, Spoil, assert_seen

sick = Sicknesses()


@sick(i03_effects_once.check, "idempotent:plain:1 was applied 2 times under 2 keys")
def a_second_intent_makes_a_second_key(run: Run) -> None:
    run.applications.append(
        Application(
            account="idempotent:plain:1", key=str(uuid("another")), attempt=2, at_s=1.7, result=9
        )
    )


@sick(i03_effects_once.check, "reconcilable:killed:1 was applied 2 times under 1 key")
def nobody_asks_before_calling_again(run: Run) -> None:
    run.apply("killed", "1:reconcilable", 11.1)


@sick(i03_effects_once.check, "unsafe:judged:0 was applied 2 times under 1 key")
def an_unsafe_effect_is_silently_done_again(run: Run) -> None:
    run.facts = [fact for fact in run.facts if fact["subtype"] != "effect_resolved"]


@sick(i03_effects_once.check, "without a person's decision")
def one_word_does_not_cover_two_more_calls(run: Run) -> None:
    run.apply("judged", "0:unsafe", 12.35)


@sick(i03_effects_once.check, "is COMPLETED, the ledger never applied it")
def what_never_happened_is_recorded_as_done(run: Run) -> None:
    run.applications = [a for a in run.applications if a.account != "idempotent:plain:1"]


@sick(i03_effects_once.check, "is FAILED, the ledger has applied it")
def what_happened_is_recorded_as_not_done(run: Run) -> None:
    run.effects["plain/1:idempotent"].update(status="FAILED", why="refused")


@sick(i03_effects_once.check, "(1:reconcilable) recorded 0, the ledger answered")
def a_reconciled_effect_returns_what_nobody_answered(run: Run) -> None:
    step = next(s for s in run.steps if s["key"] == "1:reconcilable")
    step["output"] = 0


@sick(i04_one_owner.check, "recorded '1:reconcilable', the ledger got requests of 1")
def each_owner_calls_itself_the_first(run: Run) -> None:
    run.requests = [evolve(ask, attempt=1) for ask in run.requests]


@sick(i07_intents.check, "which belongs to no intent")
def a_call_has_no_intent(run: Run) -> None:
    del run.effects["plain/1:idempotent"]


@sick(i07_intents.check, "there is no intent of it")
def a_step_has_no_intent(run: Run) -> None:
    del run.effects["plain/1:idempotent"]


@sick(i07_intents.check, "was applied before its intent was recorded")
def the_intent_comes_after_the_call(run: Run) -> None:
    run.effects["plain/1:idempotent"]["created_at"] = at(3.0)


@sick(i07_intents.check, "was applied under the key of")
def a_key_is_used_for_another_call(run: Run) -> None:
    run.effects["plain/1:idempotent"]["arguments"] = {"account": "idempotent:other:1"}


@sick(i07_intents.check, "is PENDING, its job is COMPLETED")
def an_intent_never_ends(run: Run) -> None:
    run.effects["plain/1:idempotent"]["status"] = "PENDING"


@sick(i07_intents.check, "is done, its effect PENDING")
def a_step_is_committed_without_its_outcome(run: Run) -> None:
    run.effects["plain/1:idempotent"]["status"] = "PENDING"


@sick(i07_intents.check, "is UNKNOWN, its job went on as if it were not")
def nobody_is_asked_about_an_unknown_effect(run: Run) -> None:
    run.effects["plain/1:idempotent"].update(status="UNKNOWN", why="cut off")


@sick(i07_intents.check, "is FAILED without a reason")
def a_failure_has_no_reason(run: Run) -> None:
    run.effects["plain/1:idempotent"]["status"] = "FAILED"


@sick(i07_intents.check, "which does not exist")
def an_effect_belongs_to_nobody(run: Run) -> None:
    run.effects["plain/1:idempotent"]["job_id"] = uuid("nobody")


def _answer(run: Run) -> dict[str, object]:
    step = next(s for s in run.steps if s["job_id"] == uuid("plain") and s["kind"] == "model")
    answer: dict[str, object] = step["output"]
    return answer


@sick(i34_agents.check, "its tool ran with 'nothing', the model gave None")
def a_cut_call_runs_with_defaults(run: Run) -> None:
    step = next(s for s in run.steps if s["key"] == "0:agent: 1 chaos_note#2")
    step["output"] = "nothing"


@sick(i34_agents.check, "its tool ran with 'b', the model gave 'a'")
def a_call_runs_with_other_arguments(run: Run) -> None:
    next(s for s in run.steps if s["key"] == "0:agent: 1 chaos_note")["output"] = "b"


@sick(i34_agents.check, "the model refused its conversation: text content blocks")
def a_conversation_is_refused(run: Run) -> None:
    run.jobs["agent"] |= {
        "error_code": "invalid_request",
        "error_message": "text content blocks must be non-empty",
    }


@sick(i15_whole_answers.check, "its stop reason is None")
def an_answer_ends_without_a_reason(run: Run) -> None:
    _answer(run)["stop_reason"] = None


@sick(i15_whole_answers.check, "its answer ends with 'answer to pla'")
def half_an_answer_is_kept(run: Run) -> None:
    _answer(run)["content"] = [{"type": "text", "text": "answer to pla"}]


@sick(i15_whole_answers.check, "its answer is '<html>'")
def a_web_page_is_kept_as_an_answer(run: Run) -> None:
    next(s for s in run.steps if s["kind"] == "model")["output"] = "<html>"


@sick(i15_whole_answers.check, "its cost is unknown")
def an_answer_has_no_usage(run: Run) -> None:
    next(s for s in run.steps if s["kind"] == "model")["usage"] = None


APPROVAL = f"approval:{uuid('approval of decided')}"


@sick(i18_decided_once.check, "it was decided 2 times: approval_approved")
def a_request_is_decided_twice(run: Run) -> None:
    run.fact("approval_denied", APPROVAL, 4.01, by="bob")


@sick(i18_decided_once.check, "2 people had to agree, but only 1 credentials did")
def two_names_of_one_credential_decide(run: Run) -> None:
    approval = run.approvals["decided"]
    approval["people"] = 2
    for person in ("ann", "bob"):
        run.votes.append(
            {
                "approval_id": approval["id"],
                "person": person,
                "credential": "os:0@here",
                "digest": approval["digest"],
            }
        )


@sick(i18_decided_once.check, "2 people were answered that they decided")
def two_people_win_the_race(run: Run) -> None:
    for number, event in enumerate(run.events):
        if event.process == "approver-bob" and event.type == "fail":
            message = {**event.value, "outcome": "denied"}
            run.events[number] = evolve(event, type="ok", value=message)


@sick(i18_decided_once.check, "ann was answered approved, but it is DENIED")
def the_record_says_otherwise_than_people_were_told(run: Run) -> None:
    run.approvals["decided"].update(status="DENIED", decided_by="bob")


@sick(i18_decided_once.check, "eve is recorded")
def somebody_else_stands_in_the_record(run: Run) -> None:
    run.approvals["decided"]["decided_by"] = "eve"


@sick(i18_decided_once.check, "eve decided it without a request")
def somebody_decides_who_never_asked_to(run: Run) -> None:
    run.approvals["decided"]["decided_by"] = "eve"


@sick(i18_decided_once.check, "it had expired at")
def a_decision_comes_too_late(run: Run) -> None:
    run.approvals["decided"]["expires_at"] = at(3.95)


@sick(i18_decided_once.check, "there was time until")
def a_request_expires_too_early(run: Run) -> None:
    run.approvals["decided"].update(status="EXPIRED", decided_by=None)


@sick(i18_decided_once.check, "it is PENDING, but its job is COMPLETED")
def a_request_is_left_open(run: Run) -> None:
    run.approvals["decided"].update(status="PENDING", decided_at=None, decided_by=None)


@sick(i18_decided_once.check, "ran by an approval that is DENIED")
def what_was_denied_is_executed(run: Run) -> None:
    run.approvals["decided"]["status"] = "DENIED"


@sick(i18_decided_once.check, "ran with arguments that were not approved")
def other_arguments_are_executed(run: Run) -> None:
    run.effects["decided/1:idempotent"]["digest"] = b"other"


@sick(i18_decided_once.check, "was intended before its approval")
def it_is_executed_before_anybody_decides(run: Run) -> None:
    run.effects["decided/1:idempotent"]["created_at"] = at(3.5)


@sick(i18_decided_once.check, "passed gate 0")
def a_job_passes_a_closed_gate(run: Run) -> None:
    run.approvals["decided"].update(status="EXPIRED", decided_by=None, decided_at=at(3700))


@pytest.mark.parametrize("check, spoil, message", sick.all)
def test_sick_effects_are_found(check: Checker, spoil: Spoil, message: str) -> None:
    assert_seen(check, spoil, message)


def test_effects_doubled_by_a_persons_resolution_are_counted() -> None:
    verdict = i03_effects_once.check(healthy_run().evidence())
    assert verdict.figures["doubled_by_word"] == 1


def test_wrong_resolution_by_a_person_is_valid() -> None:
    """The record keeps their word; that it differs from the world outside is not its fault."""
    run = healthy_run()
    run.effects["plain/1:idempotent"].update(status="FAILED", why="x", resolution="not-applied")
    assert i03_effects_once.check(run.evidence()).result is Result.VALID


def test_unknown_effect_may_outlive_a_cancelled_job() -> None:
    run = healthy_run()
    run.submit("given up", "unsafe", 40.0)
    run.claim("given up", "p3.1", 40.1)
    run.intend("given up", "0:unsafe", 40.2, status="UNKNOWN", why="its job was CANCELLED")
    run.move("given up", "CANCELLED", 40.3)
    for check in (i03_effects_once.check, i07_intents.check):
        assert check(run.evidence()).result is Result.VALID
