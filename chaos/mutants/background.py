"""Mutants of background work: messages and schedules."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

_OUTBOX: Final = "sql/queries/outbox.sql"
_SCHEDULES: Final = "sql/migrations/0020_schedules.sql"

MUTANTS: Final = (
    Mutant(
        name="unfenced-outcome",
        what="a pod records what became of a message whose lease it has lost",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "    WHERE o.status = 'PROCESSING' AND o.locked_by = $1 "
                "AND o.attempts = r.attempts\n",
                "    WHERE $1::uuid IS NOT NULL\n",
            ),
        ),
    ),
    Mutant(
        name="no-reclaim",
        what="the messages of a dead pod stay with it",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "    WHERE o.status = 'PROCESSING' AND (o.locked_until < cortex.now()\n",
                "    WHERE false AND (o.locked_until < cortex.now()\n",
            ),
        ),
    ),
    Mutant(
        name="sent-by-the-dead",
        what="what a dead pod had claimed counts as sent",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "SET status = CASE WHEN o.attempts < $2 THEN 'PENDING' ELSE 'FAILED' END, ",
                "SET status = CASE WHEN o.attempts < $2 THEN 'SENT' ELSE 'FAILED' END, ",
            ),
            Patch(
                _OUTBOX,
                "finished_at = CASE WHEN o.attempts >= $2 THEN cortex.now() END\nFROM late ",
                "finished_at = cortex.now()\nFROM late ",
            ),
        ),
    ),
    Mutant(
        name="no-order",
        what="messages of one key are sent at the same time",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "    WHERE d.key IS NOT NULL AND first.seq < d.seq\n",
                "    WHERE false AND first.seq < d.seq\n",
            ),
        ),
    ),
    Mutant(
        name="new-id-each-time",
        what="a message that is sent again has another id",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                "cortex/runtime/outbox/senders.py",
                "            str(message.id),\n            body,\n",
                "            f'{str(message.id)[:-1]}{message.attempt - 1:x}',\n"
                "            body,\n",
            ),
        ),
    ),
    Mutant(
        name="published-after",
        what="a job's message is published after its step is committed, not with it",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                "sql/migrations/0024_outbox.sql",
                "    FOR EACH ROW WHEN (NEW.kind = 'message') EXECUTE",
                "    FOR EACH ROW WHEN (NEW.kind = 'none') EXECUTE",
            ),
            Patch(
                "cortex/runtime/commit/committer.py",
                '        crash_point("after_step")\n        if is_repeat:\n',
                '        crash_point("after_step")\n'
                "        import json\n"
                "        from cortex.store.background import outbox\n"
                "        for _, one in group:\n"
                "            if one.step.kind == 'message':\n"
                "                sent = json.loads(one.step.output)\n"
                "                await self._port(\n"
                "                    outbox.publish, sent['topic'], sent['payload'],\n"
                "                    key=sent['key'],\n"
                "                )\n"
                "        if is_repeat:\n",
            ),
        ),
    ),
    Mutant(
        name="unfenced-instants",
        what="every pod fires each instant, with neither lock nor key",
        scene="on-time",
        invariant="I27",
        patches=(
            Patch(
                "sql/queries/schedules.sql",
                "SELECT pg_try_advisory_xact_lock(hashtextextended('cortex.schedules', 0)) "
                "AS is_mine;",
                "SELECT true AS is_mine;",
            ),
            Patch(
                "sql/queries/schedules.sql",
                "FROM cortex.schedule s WHERE s.name = $1 FOR UPDATE OF s SKIP LOCKED;",
                "FROM cortex.schedule s WHERE s.name = $1;",
            ),
            Patch(
                _SCHEDULES,
                "    VALUES (held.name, of_instant, outcome, new_job, problem);\n",
                "    VALUES (held.name, of_instant, outcome, new_job, problem)\n"
                "    ON CONFLICT DO NOTHING;\n",
            ),
        ),
    ),
    Mutant(
        name="queued-forgotten",
        what="a queued instant is not released when the job before it ends",
        scene="on-time",
        invariant="I27",
        patches=(
            Patch(
                _SCHEDULES,
                "    IF NOT FOUND OR EXISTS (\n",
                "    IF FOUND OR EXISTS (\n",
            ),
        ),
    ),
)
