"""Mutants of how jobs leave pods: by errors, in a drain, and if they do not fit the code."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

MUTANTS: Final = (
    Mutant(
        name="stray-error",
        what="an error of a job that is no Exception leaves its actor",
        scene="strays",
        invariant="I36",
        patches=(
            Patch(
                "cortex/runtime/jobs/job_actor.py",
                "            except BaseException as error:  # noqa: BLE001, ASYNC103 -- no error",
                "            except Exception as error:  # noqa: BLE001, ASYNC103 -- no error",
            ),
        ),
    ),
    Mutant(
        name="drain-claims",
        what="a draining pod continues to claim",
        scene="drained",
        invariant="I17",
        patches=(
            Patch(
                "cortex/runtime/pod.py",
                "        await intake.start(dispatcher)\n",
                "        await level.nursery.start(dispatcher.run)\n",
            ),
        ),
    ),
    Mutant(
        name="counted-hand-back",
        what="a hand-back costs a job one of its attempts",
        scene="drained",
        invariant="I6",
        patches=(
            Patch(
                "cortex/runtime/jobs/job_actor.py",
                'outcome="handed_back", is_counted=False)',
                'outcome="handed_back", is_counted=True)',
            ),
        ),
    ),
    Mutant(
        name="cancelled-commit",
        what="a transaction that is cancelled is forgotten, although it may be committed",
        scene="drained",
        invariant="I17",
        patches=(
            Patch(
                "cortex/postgres/bridge.py",
                'partial(setattr, until_sent, "shield", True)',
                'partial(setattr, until_sent, "shield", False)',
            ),
        ),
    ),
    Mutant(
        name="looks-again",
        what="a job is handed back under its old name, so that the same code takes it again",
        scene="released",
        invariant="I30",
        patches=(
            Patch(
                "sql/queries/tasks.sql",
                "attempts_spent - 1, task = cortex_worker.unfit_task(e.base, e.codes),",
                "attempts_spent - 1, task = e.base,",
            ),
        ),
    ),
    Mutant(
        name="acts-before-it-knows",
        what="a new call begins although the replay has not requested all that is on record",
        scene="deployed",
        invariant="I35",
        patches=(
            Patch(
                "cortex/durable/replay.py",
                "        return key in self._begun or not any(self._due())\n",
                "        return True\n",
            ),
        ),
    ),
)
