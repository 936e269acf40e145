"""What must be true of every run: one file per invariant, each a function of the evidence.

The numbers are those of the list of invariants. One has no file here: I25 (broken runtimes are
caught), which `chaos.mutants` shows.
"""

from chaos.checkers import (
    i01_acknowledged,
    i02_one_end,
    i03_effects_once,
    i04_one_owner,
    i05_checkpoints,
    i06_retries,
    i07_intents,
    i08_found_in_time,
    i09_nothing_hangs,
    i10_whole_commits,
    i11_healthy_pods,
    i12_bounded_calls,
    i13_no_bloat,
    i14_poison,
    i15_whole_answers,
    i16_no_herd,
    i17_drain,
    i18_decided_once,
    i19_messages,
    i20_legal_transitions,
    i21_idempotency_keys,
    i22_no_leaks,
    i23_no_secrets,
    i24_liveness,
    i26_quick_takeover,
    i27_schedules,
)
from chaos.checkers.verdict import Checker

ALL: tuple[Checker, ...] = (
    i01_acknowledged.check,
    i02_one_end.check,
    i03_effects_once.check,
    i04_one_owner.check,
    i05_checkpoints.check,
    i06_retries.check,
    i07_intents.check,
    i08_found_in_time.check,
    i09_nothing_hangs.check,
    i10_whole_commits.check,
    i11_healthy_pods.check,
    i12_bounded_calls.check,
    i13_no_bloat.check,
    i14_poison.check,
    i15_whole_answers.check,
    i16_no_herd.check,
    i17_drain.check,
    i18_decided_once.check,
    i19_messages.check,
    i20_legal_transitions.check,
    i21_idempotency_keys.check,
    i22_no_leaks.check,
    i23_no_secrets.check,
    i24_liveness.check,
    i26_quick_takeover.check,
    i27_schedules.check,
)
