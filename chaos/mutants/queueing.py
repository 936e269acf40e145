"""Mutants of what keeps jobs from starting: pauses, and the rules of types about their submits."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

_QUEUE: Final = "sql/migrations/0007_queue.sql"
_RULES: Final = "sql/migrations/0035_submit_rules.sql"

MUTANTS: Final = (
    Mutant(
        name="unpaused-types",
        what="claims read the tasks of paused types",
        scene="paused",
        invariant="I39",
        patches=(
            Patch(
                _QUEUE,
                "WHERE p.kind = 'all' OR p.kind = 'type' AND p.name = t.name));\n",
                "WHERE p.kind = 'all'));\n",
            ),
        ),
    ),
    Mutant(
        name="unpaused-queues",
        what="claims take the jobs of paused queues",
        scene="paused",
        invariant="I39",
        patches=(
            Patch(
                _QUEUE,
                "FROM cortex_worker.pause p WHERE p.kind = 'queue';\n",
                "FROM cortex_worker.pause p WHERE p.kind = 'queue' AND p.name <> '';\n",
            ),
        ),
    ),
    Mutant(
        name="unpaused-tenants",
        what="claims take the jobs of paused tenants",
        scene="paused",
        invariant="I39",
        patches=(
            Patch(
                _QUEUE,
                "ON p.kind = 'tenant' AND p.name = j.tenant OR p.kind = 'job'",
                "ON p.kind = 'job'",
            ),
        ),
    ),
    Mutant(
        name="two-singletons",
        what="a submit does not see that the job of its key has not ended",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "            ELSE own_key = one.key AND own_n IS NOT NULL OR EXISTS (\n"
                "                SELECT FROM cortex.job_record j "
                "WHERE j.id = held.job_id AND j.finished_at IS NULL) END;\n",
                "            ELSE false END;\n",
            ),
        ),
    ),
    Mutant(
        name="singletons-together",
        what="the jobs of a singleton's key do not take turns",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "            queue_names[one.n] := own_queue;\n",
                "            queue_names[one.n] := NULL;\n",
            ),
        ),
    ),
    Mutant(
        name="singletons-between-attempts",
        what="a job of a singleton starts while the one before it waits for another attempt",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "            INSERT INTO cortex_worker.strict_queue (queue, set_by) "
                "VALUES (own_queue, 'singleton') ON CONFLICT DO NOTHING;\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="unreplaced",
        what="the waiting job of a singleton is not replaced by a newer one",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "                job_keys[one.n] := own_queue;\n",
                "                job_keys[one.n] := NULL;\n",
            ),
        ),
    ),
    Mutant(
        name="rules-race",
        what="two submits of one key do not wait for each other",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "        ON CONFLICT (id) DO UPDATE SET key = excluded.key\n"
                "        RETURNING * INTO held;\n",
                "        ON CONFLICT (id) DO NOTHING;\n"
                "        SELECT * INTO held FROM cortex.submit_key k WHERE k.id = one.key;\n"
                # So long that it does not take luck.
                "        PERFORM pg_sleep(0.05);\n",
            ),
        ),
    ),
    Mutant(
        name="unthrottled",
        what="a throttle lets every submit through",
        scene="ruled",
        invariant="I40",
        patches=(
            Patch(
                _RULES,
                "            WHEN 'throttle' THEN held.since + one.period > moment\n",
                "            WHEN 'throttle' THEN false\n",
            ),
        ),
    ),
)
