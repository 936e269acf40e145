"""The newest dead letters by their error, as far as a look reaches."""

from cortex.store import dead_letters
from cortex.store.session import Session
from tests.support.letters import fail, set_breaker


def test_errors_are_counted_as_far_as_was_looked(store: Session, database: str) -> None:
    fail(database, 3, error_message="it broke", error_source="llm:gpt")
    (other,) = fail(database, error_message="no page", error_code="not_found")
    set_breaker(database, "llm:gpt", "OPEN")
    newest, older = store(dead_letters.newest, looked_max=100, limit=10)
    assert (newest["job_id"], newest["count"], newest["breaker"]) == (other, 1, None)
    assert (older["count"], older["breaker"], older["is_all"]) == (3, "OPEN", True)
    assert older["first_at"] <= older["last_at"] <= newest["last_at"]
    cut = store(dead_letters.newest, looked_max=2, limit=10)
    assert [row["count"] for row in cut] == [1, 1]
    assert not cut[0]["is_all"]
    assert len(store(dead_letters.newest, looked_max=100, limit=1)) == 1


def test_letters_of_an_error_are_the_ones_that_were_counted(store: Session, database: str) -> None:
    first, second, third = (fail(database)[0] for _ in range(3))
    fail(database, error_message="no page", error_code="not_found")
    (_, error) = store(dead_letters.newest, looked_max=100, limit=10)
    rows = store(dead_letters.newest_of, error["fingerprint"], looked_max=100, limit=10)
    assert [row["job_id"] for row in rows] == [third, second, first]
    (cut,) = store(dead_letters.newest_of, error["fingerprint"], looked_max=2, limit=10)
    assert cut["job_id"] == third
    (settled,) = store(dead_letters.discard, [second], by="ana", reason="old")
    assert settled.error is None
    rows = store(dead_letters.newest_of, error["fingerprint"], looked_max=100, limit=10)
    assert [row["job_id"] for row in rows] == [third, first]
