"""Mutants of job ownership: fences, heartbeats, takeovers, sweeps."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

_OWNED: Final = "    WHERE t.job_id = s.job_id AND t.attempt = s.attempt AND t.locked_by = $1\n"
_ANYBODYS: Final = "    WHERE t.job_id = s.job_id AND t.state = 'LOCKED' AND $1::uuid IS NOT NULL\n"
_STEPS: Final = "cost_usd, usage, output, head, input, amid, parent_key)\n"
_OUTCOMES: Final = "input, amid, parent_key,\n             effect_id, applied, why)\n"

MUTANTS: Final = (
    Mutant(
        name="no-fence",
        what="steps are committed although another pod owns the job",
        scene="outlived",
        invariant="I4",
        patches=(
            Patch("sql/queries/steps.sql", _STEPS + _OWNED, _STEPS + _ANYBODYS),
            Patch("sql/queries/steps.sql", _OUTCOMES + _OWNED, _OUTCOMES + _ANYBODYS),
        ),
    ),
    Mutant(
        name="unfenced-heartbeat",
        what="a heartbeat keeps jobs alive that another pod runs",
        scene="outlived",
        invariant="I4",
        patches=(
            Patch(
                "sql/queries/pods.sql",
                "    WHERE t.attempt = m.attempt AND t.locked_by = $1 AND EXISTS (",
                "    WHERE m.attempt IS NOT NULL AND t.state = 'LOCKED' AND EXISTS (",
            ),
            Patch(
                "sql/queries/pods.sql",
                "    WHERE t.job_id = held.job_id AND t.locked_by = $1\n",
                "    WHERE t.job_id = held.job_id AND t.state = 'LOCKED'\n",
            ),
        ),
    ),
    Mutant(
        name="no-self-fence",
        what="a pod never fences itself, however long its heartbeats fail",
        scene="cut-off",
        invariant="I11",
        patches=(
            Patch(
                "cortex/runtime/self_fence.py",
                "        return self.silent_s > self._fence_s\n",
                "        return False\n",
            ),
        ),
    ),
    Mutant(
        name="sweep-after-outage",
        what="silent jobs are swept as soon as the server is back",
        scene="cut-off",
        invariant="I11",
        patches=(
            Patch(
                "cortex/runtime/liveness/sweeper.py",
                "            if is_steady:\n",
                "            if self._self_fence is not None and self._self_fence.is_sure:\n",
            ),
            Patch(
                "sql/queries/tasks.sql",
                " AND cortex.serving_since() < cortex.now() - $1::float8 * interval '1 second'\n",
                " AND $1::float8 > 0\n",
            ),
        ),
    ),
    Mutant(
        name="hasty-sweep",
        what="a job is swept after a quarter of the threshold",
        scene="killed",
        invariant="I11",
        patches=(
            Patch(
                "cortex/runtime/liveness/sweeper.py",
                "            silent_s=self._zombie_s,\n            limit=",
                "            silent_s=self._zombie_s / 4,\n            limit=",
            ),
        ),
    ),
    Mutant(
        name="one-look",
        what="a pod counts as dead after one poll with a free lock",
        scene="killed",
        invariant="I11",
        patches=(
            Patch(
                "cortex/runtime/liveness/takeover.py",
                "CHECKS_APART_S: Final = 0.5\n",
                "CHECKS_APART_S: Final = 0.0\n",
            ),
        ),
    ),
    Mutant(
        name="slow-takeover",
        what="a pod counts as dead only seconds after its lock is free",
        scene="bereft",
        invariant="I26",
        patches=(
            Patch(
                "cortex/runtime/liveness/takeover.py",
                "CHECKS_APART_S: Final = 0.5\n",
                "CHECKS_APART_S: Final = 3.0\n",
            ),
        ),
    ),
    Mutant(
        name="no-lock-check",
        what="a pod counts as dead although it holds its lock",
        scene="seldom-heard",
        invariant="I11",
        patches=(
            Patch(
                "sql/queries/pods.sql",
                "  AND p.id NOT IN (SELECT cortex.connected_pods());\n",
                "  AND p.id IN (SELECT cortex.connected_pods());\n",
            ),
            Patch(
                "sql/queries/tasks.sql",
                " AND p.id NOT IN (SELECT cortex.connected_pods())\n    FOR NO KEY UPDATE",
                "\n    FOR NO KEY UPDATE",
            ),
        ),
    ),
    Mutant(
        name="uncounted-deaths",
        what="the processes that a job has killed are not counted",
        scene="poisoned",
        invariant="I14",
        patches=(
            Patch(
                "sql/queries/tasks.sql",
                "+ CASE WHEN f.outcome = 'process_died' THEN 1 ELSE 0 END,\n",
                "+ 0,\n",
            ),
        ),
    ),
    Mutant(
        name="innocent-condemned",
        what="the deaths of a job's pods condemn it, and not only those of its own process",
        scene="poisoned",
        invariant="I14",
        patches=(
            Patch(
                "sql/queries/tasks.sql",
                "t.is_suspect, j.process_deaths, j.payload,\n",
                "t.is_suspect, j.process_deaths + j.pod_deaths AS process_deaths, j.payload,\n",
            ),
        ),
    ),
    Mutant(
        name="deaths-beyond-steps",
        what="a step does not reset the deaths that are counted against its job",
        scene="crashing",
        invariant="I14",
        patches=(
            Patch(
                "sql/queries/tasks.sql",
                "t.checkpoint IS NOT NULL AS has_stepped, e.is_over\n), gone AS (",
                "false AS has_stepped, e.is_over\n), gone AS (",
            ),
            Patch(
                "cortex/runtime/job_ending.py",
                "    deaths = 1 if has_stepped else claim.process_deaths + 1\n",
                "    deaths = claim.process_deaths + 1\n",
            ),
        ),
    ),
)
