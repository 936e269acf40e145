"""I3: compares what the world outside did for each effect with what the record says.

If the other side honours keys or can be queried, an effect is applied once. Otherwise it is applied
again only after a person said that it had not been applied; such cases are counted. A second
application without a person's decision breaks the rule.
"""

from collections import Counter
from typing import Any
from uuid import UUID

from chaos.checkers.timeline import effects_in_ledger, key_of, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Application, Evidence, Row

ONCE = ("idempotent", "reconcilable")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I3", "an effect is applied once, or again by a person's decision")
    jobs = {key_of(job): job for job in evidence.jobs if operations_of(job)}
    accounts: dict[str, list[Application]] = {}
    for application in evidence.applications:
        accounts.setdefault(application.account, []).append(application)
    words = _decisions(evidence)
    by_kind: Counter[str] = Counter()
    doubled = 0
    for account, applied in accounts.items():
        findings.count()
        kind, _, rest = account.partition(":")
        key = rest.rpartition(":")[0]
        by_kind[kind] += 1
        extra = len(applied) - 1
        if kind in ONCE and extra:
            findings.broken(f"{account} was applied {_times(applied)}", job=_id(jobs.get(key)))
        elif extra > sum(words[effect] for effect in {a.key for a in applied}):
            findings.broken(
                f"{account} was applied {_times(applied)}, without a person's decision",
                job=_id(jobs.get(key)),
            )
        else:
            doubled += extra
    _compare(evidence, findings)
    kinds: dict[str, Any] = {f"{kind}_effects": count for kind, count in by_kind.items()}
    return findings.verdict(
        effects=len(accounts),
        doubled_by_word=doubled,
        **kinds,
    )


def _decisions(evidence: Evidence) -> Counter[str]:
    """How often a person said that an effect had not been applied."""
    effect_ids = (
        str(fact["source"]).removeprefix("effect:")
        for fact in evidence.facts
        if fact["subtype"] == "effect_resolved" and fact["data"]["resolution"] == "not-applied"
    )
    return Counter(effect_ids)


def _compare(evidence: Evidence, findings: Findings) -> None:
    """The record must not claim what the other side has not done, nor deny what it has."""
    results: dict[str, set[Any]] = {}
    for application in evidence.applications:
        results.setdefault(application.key, set()).add(application.result)
    outputs = {(step["job_id"], step["key"]): step["output"] for step in evidence.steps}
    for effect in effects_in_ledger(evidence):
        findings.count()
        answered = results.get(str(effect["id"]), set())
        was_applied = bool(answered)
        if effect["status"] == "COMPLETED" and not was_applied:
            why = (
                f"effect {effect['id']} ({effect['key']}) is COMPLETED, the ledger never applied it"
            )
            findings.broken(why, job=effect["job_id"])
        output = outputs.get((effect["job_id"], effect["key"]))
        if effect["status"] == "COMPLETED" and was_applied and output not in {None, *answered}:
            listed = ", ".join(map(str, sorted(answered)))
            why = f"effect {effect['id']} ({effect['key']}) recorded {output!r}"
            findings.broken(f"{why}, the ledger answered {listed}", job=effect["job_id"])
        if effect["status"] == "FAILED" and was_applied:
            why = f"effect {effect['id']} ({effect['key']}) is FAILED, the ledger has applied it"
            findings.broken(why, job=effect["job_id"])


def _times(applied: list[Application]) -> str:
    listed = ", ".join(f"by attempt {a.attempt} at {a.at_s:.2f} s" for a in applied)
    keys = len({a.key for a in applied})
    return f"{len(applied)} times under {keys} key{'s' if keys > 1 else ''}: {listed}"


def _id(job: Row | None) -> UUID | None:
    return None if job is None else job["id"]
