"""The server of tools while its database is away."""

from cortex.postgres.migrate import migrate
from cortex.postgres.session import run_alone
from tests.support.assistant import assistant, token_of
from tests.support.eventually import eventually
from tests.support.records.rows import new_id
from tests.support.servers.private_postgres import PrivatePostgres


def test_a_lost_database_is_an_error_a_call_until_it_is_back(
    private_postgres: PrivatePostgres,
) -> None:
    dsn = private_postgres.dsn
    run_alone(lambda: migrate(dsn))
    token = token_of(dsn, "viewer")
    for given in ({}, {"token": token}):
        with assistant(dsn, **given) as ask:  # type: ignore[arg-type]
            assert not ask("list_jobs").is_error
            private_postgres.kill()
            for tool, arguments in (("list_jobs", {}), ("wait_for_job", {"job_id": str(new_id())})):
                line = ask(tool, **arguments).error
                assert line.startswith(("error (unavailable): ", "error (outcome_unknown): ")), line
            assert "list_jobs" in ask.tools(), "a client that lists its tools meanwhile gets them"
            private_postgres.start()
            eventually(lambda: not ask("list_jobs").is_error, what="the database is back")
