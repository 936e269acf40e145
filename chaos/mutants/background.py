"""Mutants of background work: messages, schedules, reminders and retention."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

_OUTBOX: Final = "sql/queries/outbox.sql"
_SCHEDULES: Final = "sql/migrations/0020_schedules.sql"
_RETENTION: Final = "sql/migrations/0023_retention.sql"
_MESSAGES: Final = "sql/migrations/0024_outbox.sql"

_NO_KEY: Final = (
    Patch(
        _SCHEDULES,
        "    IF EXISTS (SELECT FROM cortex.schedule_instant i "
        "WHERE i.schedule = held.name AND i.instant = of_instant) THEN\n",
        "    IF false THEN\n",
    ),
    Patch(
        _SCHEDULES,
        "outcome, new_job, problem, is_made_up, behind, why);\n",
        "outcome, new_job, problem, is_made_up, behind, why)\n"
        "    ON CONFLICT (schedule, instant) DO UPDATE\n"
        "    SET outcome = excluded.outcome, job_id = excluded.job_id;\n",
    ),
)
"""An instant of a schedule may fire twice."""

_LOGS: Final = "cortex/runtime/logs/writer.py"

MUTANTS: Final = (
    Mutant(
        name="lines-twice",
        what="log lines whose reply was lost are stored again",
        scene="logged",
        invariant="I37",
        patches=(
            Patch(
                "sql/migrations/0026_logs.sql",
                "    CONSTRAINT log_line_once UNIQUE (job_id, attempt, number)\n",
                "    CONSTRAINT log_line_once UNIQUE (id, job_id)\n",
            ),
            Patch(
                "sql/queries/logs.sql",
                "ON CONFLICT (job_id, attempt, number) DO NOTHING;\n",
                ";\n",
            ),
        ),
    ),
    Mutant(
        name="lines-forgotten",
        what="log lines whose reply was lost are not sent again, and not counted",
        scene="logged",
        invariant="I37",
        patches=(
            Patch(
                _LOGS,
                "            self._failures_count += 1\n            return False\n",
                "            self._failures_count += 1\n"
                "            self._unsent = []\n            return False\n",
            ),
        ),
    ),
    Mutant(
        name="lines-unflushed",
        what="a pod that leaves does not store the last log lines, of which it gathers more",
        scene="logged-off",
        invariant="I37",
        patches=(
            Patch(_LOGS, "GATHER_S: Final = 0.2\n", "GATHER_S: Final = 3.0\n"),
            Patch(
                _LOGS,
                "                while self._has_more and await self._write():\n",
                "                while False and await self._write():\n",
            ),
        ),
    ),
    Mutant(
        name="lines-uncounted",
        what="lines that an attempt writes too fast are dropped, and nothing says so",
        scene="logged",
        invariant="I37",
        patches=(
            Patch(
                "cortex/durable/job_log.py",
                "                self._drop(tally, why, 1)\n",
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        name="unfenced-outcome",
        what="a pod records what became of a message whose lease it has lost",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "    WHERE o.status = 'PROCESSING' AND o.locked_by = $1 AND o.claim = r.claim\n",
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
                "SET status = CASE WHEN o.lost_count + 1 < $2 THEN 'PENDING' ELSE 'FAILED' END, ",
                "SET status = CASE WHEN o.lost_count + 1 < $2 THEN 'SENT' ELSE 'FAILED' END, ",
            ),
            Patch(
                _OUTBOX,
                "    finished_at = CASE WHEN o.lost_count + 1 >= $2 THEN cortex.now() END\n",
                "    finished_at = cortex.now()\n",
            ),
        ),
    ),
    Mutant(
        name="death-costs-an-attempt",
        what="a pod that dies while it sends a message costs the message an attempt",
        scene="mail",
        invariant="I19",
        patches=(
            Patch(
                _OUTBOX,
                "    attempts = o.attempts - 1, lost_count = o.lost_count + 1,\n",
                "    lost_count = o.lost_count + 1,\n",
            ),
        ),
    ),
    Mutant(
        name="given-up-in-seconds",
        what="a receiver outside gets three attempts within seconds, as a handler does",
        scene="away",
        invariant="I19",
        patches=(
            Patch(
                "cortex/domain/messages/subscription.py",
                "        default = FOR_DAYS if is_outside else AT_ONCE_OR_SOON\n",
                "        default = AT_ONCE_OR_SOON if is_outside else AT_ONCE_OR_SOON\n",
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
                _MESSAGES,
                "WHEN (NEW.kind = 'message' AND NEW.attempt > 0) EXECUTE",
                "WHEN (NEW.kind = 'none') EXECUTE",
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
                "SELECT cortex.take_turn('schedules') AS is_mine;",
                "SELECT true AS is_mine;",
            ),
            Patch(
                "sql/queries/schedules.sql",
                "FROM cortex.schedule s WHERE s.name = $1 FOR UPDATE OF s SKIP LOCKED;",
                "FROM cortex.schedule s WHERE s.name = $1;",
            ),
            Patch(
                _SCHEDULES,
                "outcome, new_job, problem, is_made_up, behind, why);\n",
                "outcome, new_job, problem, is_made_up, behind, why)\n"
                "    ON CONFLICT DO NOTHING;\n",
            ),
        ),
    ),
    Mutant(
        name="moved-on-afterwards",
        what="a schedule moves on in another transaction than it fires in, and has no key",
        scene="on-time",
        invariant="I27",
        patches=(
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "            await self._advance(plan)\n",
                "            self.plan = plan\n",
            ),
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "        return await _Firing(inside, row).run(limit)\n\n"
                "    return await db.transact(work)\n",
                "        firing.append(_Firing(inside, row))\n"
                "        return await firing[0].run(limit)\n\n"
                "    firing: list[_Firing] = []\n"
                "    fired = await db.transact(work)\n"
                "    for one in firing:\n"
                "        one._inside = db\n"
                "        if getattr(one, 'plan', None) is not None:\n"
                "            await one._advance(one.plan)\n"
                "    return fired\n",
            ),
            *_NO_KEY,
        ),
    ),
    Mutant(
        name="moved-on-by-another-call",
        what="a schedule moves on in another store method than it fires in, and has no key",
        scene="between-calls",
        invariant="I27",
        patches=(
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "            await self._advance(plan)\n",
                "            left.append((self, plan))\n",
            ),
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "from typing import Final\n",
                "from typing import Any, Final\n",
            ),
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "class _Firing:\n",
                "left: list[tuple[Any, Plan]] = []\n\n\n"
                "async def move_on(db: Database) -> None:\n"
                "    while left:\n"
                "        firing, plan = left.pop()\n"
                "        firing._inside = db\n"
                "        await firing._advance(plan)\n\n\n"
                "class _Firing:\n",
            ),
            Patch(
                "cortex/runtime/maintenance/schedules.py",
                "        if fired.instants:\n",
                "        from cortex.store.background.schedule_ticks import move_on\n"
                "        if fired.instants:\n"
                "            await self._port(move_on)\n",
            ),
            *_NO_KEY,
        ),
    ),
    Mutant(
        name="last-of-an-outage-skipped",
        what="of what was due in an outage, the instant that is hardly late counts as on time",
        scene="caught-up",
        invariant="I27",
        patches=(
            Patch(
                "cortex/store/background/schedule_ticks.py",
                "        in_outage = [self._schedule.due_at(each) <= self._made_up_until "
                "for each in due]\n",
                "        late = self._row['now'] - timedelta(seconds=GRACE_S)\n"
                "        in_outage = [self._schedule.due_at(each) < late for each in due]\n",
            ),
            Patch(
                _SCHEDULES,
                "            is_made_up := made_up.behind_count IS NULL OR "
                "behind < made_up.behind_count;\n",
                "            is_made_up := false;\n",
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
                "    IF NOT FOUND OR held.paused_at IS NOT NULL OR EXISTS (\n",
                "    IF FOUND OR held.paused_at IS NOT NULL OR EXISTS (\n",
            ),
        ),
    ),
    Mutant(
        name="unfenced-reminders",
        what="a reminder leaves no trace in its request, so each look reminds again",
        scene="asked",
        invariant="I28",
        patches=(
            Patch(
                _MESSAGES,
                "        UPDATE cortex.approval a SET remind_at = "
                "CASE WHEN NOT is_second THEN second END WHERE a.id = held.id;\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="reminds-of-decided",
        what="people are reminded of a request that is decided",
        scene="asked",
        invariant="I28",
        patches=(
            Patch(
                _MESSAGES,
                "FROM cortex.approval a WHERE a.status = 'PENDING' "
                "AND a.remind_at <= cortex.now()\n",
                "FROM cortex.approval a WHERE a.status <> 'PENDING' AND a.remind_at IS NOT NULL\n",
            ),
            Patch(  # a request that is decided cannot be written to
                _MESSAGES,
                "CASE WHEN NOT is_second THEN second END WHERE a.id = held.id;\n",
                "NULL WHERE a.id = held.id AND a.status = 'PENDING';\n",
            ),
        ),
    ),
    Mutant(
        name="asked-twice-by-hand",
        what="each try of a job that reminds by hand sends another message",
        scene="asked",
        invariant="I28",
        patches=(
            Patch(
                "cortex/jobs/approval_notify.py",
                'message_id = uuid5(ctx.job_id, "message")',
                "message_id = uuid5(ctx.job_id, str(ctx.attempt + 1))",
            ),
        ),
    ),
    Mutant(
        name="nobody-asked",
        what="no message says that a request waits",
        scene="asked",
        invariant="I28",
        patches=(
            Patch(
                _MESSAGES,
                "CREATE TRIGGER approval_requested AFTER INSERT ON cortex.approval\n"
                "    FOR EACH ROW EXECUTE",
                "CREATE TRIGGER approval_requested AFTER INSERT ON cortex.approval\n"
                "    FOR EACH ROW WHEN (NEW.status <> 'PENDING') EXECUTE",
            ),
        ),
    ),
    Mutant(
        name="deletes-what-is-needed",
        what="retention deletes jobs that a budget refers to",
        scene="forgotten",
        invariant="I29",
        patches=(
            Patch(
                _RETENTION,
                "b.scope = 'job' AND b.subject = r.id::text\n",
                "false\n",
            ),
        ),
    ),
    Mutant(
        name="archives-afterwards",
        what="old jobs are deleted before their copy is on the disk",
        scene="forgotten",
        invariant="I29",
        patches=(
            Patch(
                "cortex/runtime/maintenance/retention.py",
                "            copy = await self._port(retention.copy, batch)\n",
                "            copy = await self._port(retention.copy, batch)\n"
                "            await self._port(\n"
                "                retention.delete, copy.batch, facts_through=copy.facts_through\n"
                "            )\n"
                '            crash_point("after_archive")\n',
            ),
        ),
    ),
)
