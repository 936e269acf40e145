"""What each database role may do with each object, as data: a new object needs a row here.

A letter is a right: S SELECT, I INSERT, U UPDATE, D DELETE, X TRUNCATE, R REFERENCES, T TRIGGER,
and of a sequence V USAGE; a small one covers some columns only. A role that is not named may do
nothing, except cortex_operator, which is a member of cortex_runtime.
"""

from typing import Final

from tests.support.servers.postgres import sql

RUNTIME: Final = "cortex_runtime"
SUBMITTER: Final = "cortex_submitter"
READER: Final = "cortex_reader"
OPERATOR: Final = "cortex_operator"
PUBLIC: Final = "public"
ROLES: Final = (RUNTIME, OPERATOR, SUBMITTER, READER, PUBLIC)
LETTERS: Final = {
    "SELECT": "S",
    "INSERT": "I",
    "UPDATE": "U",
    "DELETE": "D",
    "TRUNCATE": "X",
    "REFERENCES": "R",
    "TRIGGER": "T",
}
OF_COLUMNS: Final = ("SELECT", "INSERT", "UPDATE", "REFERENCES")

TABLES: Final[dict[str, dict[str, str]]] = {
    "cortex.agent": {READER: "S", RUNTIME: "ISU"},
    "cortex.agent_version": {READER: "S", RUNTIME: "IS"},
    "cortex.alarm": {READER: "S", RUNTIME: "DISU"},
    "cortex.api_session": {},
    "cortex.api_token": {RUNTIME: "s"},
    "cortex.approval": {READER: "s", RUNTIME: "s"},
    "cortex.approval_notice": {READER: "S", RUNTIME: "S"},
    "cortex.approval_seq_seq": {},
    "cortex.approval_vote": {READER: "S", RUNTIME: "S"},
    "cortex.breaker": {READER: "S", RUNTIME: "DISU"},
    "cortex.breaker_now": {READER: "S", RUNTIME: "S"},
    "cortex.breaker_version": {RUNTIME: "V"},
    "cortex.budget": {READER: "S", RUNTIME: "S"},
    "cortex.budget_id_seq": {},
    "cortex.budget_use": {READER: "S", RUNTIME: "DISU"},
    "cortex.callback": {READER: "s", RUNTIME: "ISU"},
    "cortex.child_cut": {READER: "S", RUNTIME: "S"},
    "cortex.code": {READER: "S", RUNTIME: "ISu"},
    "cortex.code_arguments": {READER: "S", RUNTIME: "IS"},
    "cortex.code_id_seq": {},
    "cortex.config": {READER: "S", RUNTIME: "IS"},
    "cortex.config_id_seq": {},
    "cortex.dead_letter": {READER: "S", RUNTIME: "Su"},
    "cortex.effect": {READER: "S", RUNTIME: "Siu"},
    "cortex.effect_vote": {READER: "S", RUNTIME: "S"},
    "cortex.fact": {READER: "S", RUNTIME: "IS"},
    "cortex.fact_id_seq": {},
    "cortex.failing_subscription": {READER: "S", RUNTIME: "DISU"},
    "cortex.flow": {READER: "S", RUNTIME: "ISU"},
    "cortex.flow_version": {READER: "S", RUNTIME: "IS"},
    "cortex.idempotency_key": {RUNTIME: "DISU"},
    "cortex.job": {READER: "S", RUNTIME: "S"},
    "cortex.job_attempt": {READER: "S", RUNTIME: "IS"},
    "cortex.job_child": {READER: "S", RUNTIME: "S"},
    "cortex.job_file": {READER: "S", RUNTIME: "IS"},
    "cortex.job_published": {READER: "S", RUNTIME: "ISU"},
    "cortex.job_history": {READER: "S", RUNTIME: "S"},
    "cortex.job_history_id_seq": {},
    "cortex.job_record": {READER: "S", RUNTIME: "ISU"},
    "cortex.job_state": {READER: "S", RUNTIME: "S"},
    "cortex.job_step": {READER: "S", RUNTIME: "IS"},
    "cortex.job_type": {READER: "S", RUNTIME: "ISU"},
    "cortex.job_wait": {READER: "S", RUNTIME: "DIS"},
    "cortex.job_wake": {READER: "S", RUNTIME: "DISU"},
    "cortex.job_wake_id_seq": {},
    "cortex.log_line": {READER: "S", RUNTIME: "IS"},
    "cortex.log_line_id_seq": {},
    "cortex.login_tenant": {},
    "cortex.mcp_tool": {READER: "S", RUNTIME: "S"},
    "cortex.migration": {READER: "S", SUBMITTER: "S", RUNTIME: "S"},
    "cortex.job_limit": {READER: "S", RUNTIME: "DISU"},
    "cortex.job_limit_id_seq": {},
    "cortex.limited_type": {READER: "S", RUNTIME: "DISU"},
    "cortex.model_batch": {READER: "S", RUNTIME: "DISU"},
    "cortex.model_batch_call": {READER: "S", RUNTIME: "DISU"},
    "cortex.outbox": {READER: "S", RUNTIME: "DSu"},
    "cortex.outbox_seq_seq": {},
    "cortex.person": {READER: "S", RUNTIME: "S"},
    "cortex.person_credential": {RUNTIME: "S"},
    "cortex.pod": {READER: "S", RUNTIME: "ISU"},
    "cortex.quota": {READER: "S", RUNTIME: "DISU"},
    "cortex.quota_id_seq": {},
    "cortex.quota_use": {READER: "S", RUNTIME: "DISU"},
    "cortex.reservation": {READER: "S", RUNTIME: "DISU"},
    "cortex.retention": {READER: "S", RUNTIME: "S"},
    "cortex.retention_place": {READER: "S", RUNTIME: "ISU"},
    "cortex.runner": {READER: "S", RUNTIME: "ISU"},
    "cortex.runner_turn": {RUNTIME: "SU"},
    "cortex.said": {READER: "S", RUNTIME: "DISU"},
    "cortex.said_id_seq": {},
    "cortex.schedule": {READER: "S", RUNTIME: "DISU"},
    "cortex.schedule_instant": {READER: "S", RUNTIME: "ISU"},
    "cortex.schedule_pod": {READER: "S", RUNTIME: "DIS"},
    "cortex.signal": {READER: "S", RUNTIME: "S"},
    "cortex.signal_seq_seq": {},
    "cortex.submit_key": {READER: "S", RUNTIME: "DISU"},
    "cortex.submit_rule": {READER: "S", RUNTIME: "DISU"},
    "cortex.subscription": {READER: "S", RUNTIME: "DISU"},
    "cortex.tenant_cap": {READER: "S", RUNTIME: "DISU"},
    "cortex.timeout_event": {READER: "S", RUNTIME: "IS"},
    "cortex.timeout_event_id_seq": {},
    "cortex.tool_set": {READER: "S", RUNTIME: "IS"},
    "cortex.turn": {READER: "S", RUNTIME: "ISU"},
    "cortex.waiting_client": {RUNTIME: "S"},
    "cortex.watch": {RUNTIME: "DISU"},
    "cortex_worker.pause": {READER: "S", RUNTIME: "DIS"},
    "cortex_worker.queue_due": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.queue_due_id_seq": {},
    "cortex_worker.queue_pause": {READER: "S", RUNTIME: "S"},
    "cortex_worker.ready_head": {READER: "S", RUNTIME: "S"},
    "cortex_worker.stranded": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.limit_cursor": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.limit_hold": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.limit_use": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.strict_queue": {READER: "S", RUNTIME: "DIS"},
    "cortex_worker.task": {READER: "S", RUNTIME: "DISU"},
    "cortex_worker.task_id_seq": {RUNTIME: "V"},
    "cortex_worker.unfit": {READER: "S", RUNTIME: "DISU"},
}

FUNCTIONS: Final[dict[str, set[str]]] = {
    "cortex.add_person": {RUNTIME},
    "cortex.announce": {RUNTIME},
    "cortex.announce_all": {RUNTIME},
    "cortex.backend_start": {RUNTIME},
    "cortex.caller_tenant": {RUNTIME, SUBMITTER},
    "cortex.connected_pods": {READER, RUNTIME},
    "cortex.create_token": {RUNTIME},
    "cortex.credential_person": {READER, RUNTIME},
    "cortex.effect_agreed_by": {READER, RUNTIME},
    "cortex.decide": {RUNTIME},
    "cortex.delete_retired": {RUNTIME},
    "cortex.delete_retired_facts": {RUNTIME},
    "cortex.expire_approvals": {RUNTIME},
    "cortex.first_submit": {RUNTIME, SUBMITTER},
    "cortex.adopt_children": {RUNTIME},
    "cortex.continue_child": {RUNTIME},
    "cortex.spawn_children": {RUNTIME},
    "cortex.withdraw_children": {RUNTIME},
    "cortex.forget_cuts": {RUNTIME},
    "cortex.forget_instants": {RUNTIME},
    "cortex.forget_lines": {RUNTIME},
    "cortex.forget_pods": {RUNTIME},
    "cortex.forget_signals": {RUNTIME},
    "cortex.forget_upkeep": {RUNTIME},
    "cortex.has_link": {READER, RUNTIME},
    "cortex.holder_of": {READER, RUNTIME},
    "cortex.is_link": {RUNTIME},
    "cortex.job_events": {RUNTIME, SUBMITTER},
    "cortex.job_results": {RUNTIME, SUBMITTER},
    "cortex.job_shows": {RUNTIME, SUBMITTER},
    "cortex.known_person": {READER, RUNTIME},
    "cortex.lift_freeze": {RUNTIME},
    "cortex.link_approval": {RUNTIME},
    "cortex.note_mcp_tools": {RUNTIME},
    "cortex.publish": {RUNTIME},
    "cortex.put_budget": {RUNTIME},
    "cortex.raise_budget": {RUNTIME},
    "cortex.remind_approval": {RUNTIME},
    "cortex.remind_approvals": {RUNTIME},
    "cortex.remove_budget": {RUNTIME},
    "cortex.request_approvals": {RUNTIME},
    "cortex.resolve_effect": {RUNTIME},
    "cortex.retention_turn": {RUNTIME},
    "cortex.retired": {RUNTIME},
    "cortex.revoke_token": {RUNTIME},
    "cortex.served_type": {RUNTIME, SUBMITTER},
    "cortex.send_signal": {RUNTIME, SUBMITTER},
    "cortex.serving_since": {READER, RUNTIME},
    "cortex.set_retention": {RUNTIME},
    "cortex.sign_in": {RUNTIME},
    "cortex.sign_out": {RUNTIME},
    "cortex.submit_jobs": {RUNTIME, SUBMITTER},
    "cortex.submitted_as": {RUNTIME, SUBMITTER},
    "cortex.switch_person": {RUNTIME},
    "cortex.take_signal": {RUNTIME},
    "cortex.trust_mcp_tools": {RUNTIME},
    "cortex.use_session": {RUNTIME},
    "cortex.use_token": {RUNTIME},
    "cortex.wait_for_jobs": {RUNTIME, SUBMITTER},
}
"""Those that run with the owner's rights, and who may call them."""


def found_tables(dsn: str) -> dict[str, dict[str, str]]:
    """The rights of each role on each table, view and sequence."""
    rows = sql(
        dsn,
        """
        SELECT n.nspname || '.' || c.relname AS name, r.role, p.privilege,
               CASE WHEN c.relkind = 'S' THEN false
                    ELSE has_table_privilege(r.role, c.oid, p.privilege) END AS whole,
               CASE WHEN c.relkind = 'S' OR p.privilege <> ALL ($2::text[]) THEN false
                    ELSE has_any_column_privilege(r.role, c.oid, p.privilege) END AS some,
               c.relkind = 'S' AND has_sequence_privilege(r.role, c.oid, 'USAGE') AS uses
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN unnest($1::name[]) AS r(role) CROSS JOIN unnest($3::text[]) AS p(privilege)
        WHERE n.nspname IN ('cortex', 'cortex_worker')
          AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        """,
        list(ROLES),
        list(OF_COLUMNS),
        list(LETTERS),
    )
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        letter = LETTERS[row["privilege"]]
        has = letter if row["whole"] else letter.lower() if row["some"] else ""
        if row["uses"] and row["privilege"] == "SELECT":
            has = "V"
        rights = found.setdefault(row["name"], {})
        if has:
            rights[row["role"]] = rights.get(row["role"], "") + has
    return {
        name: {role: "".join(sorted(letters)) for role, letters in rights.items()}
        for name, rights in found.items()
    }


def found_functions(dsn: str) -> dict[str, set[str]]:
    """The roles that may call each function that runs with the owner's rights."""
    rows = sql(
        dsn,
        """
        SELECT n.nspname || '.' || p.proname AS name, r.role
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        CROSS JOIN unnest($1::name[]) AS r(role)
        WHERE p.prosecdef AND n.nspname IN ('cortex', 'cortex_worker')
          AND has_function_privilege(r.role, p.oid, 'EXECUTE')
        """,
        list(ROLES),
    )
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["name"], set()).add(row["role"])
    return found


def test_each_role_may_do_with_each_table_what_is_listed(shared_database: str) -> None:
    expected = {
        name: rights | ({OPERATOR: rights[RUNTIME]} if RUNTIME in rights else {})
        for name, rights in TABLES.items()
    }
    assert found_tables(shared_database) == expected


def test_each_role_may_call_with_the_owners_rights_what_is_listed(shared_database: str) -> None:
    expected = {
        name: roles | ({OPERATOR} if RUNTIME in roles else set())
        for name, roles in FUNCTIONS.items()
    }
    assert found_functions(shared_database) == expected
