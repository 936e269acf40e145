"""`/v1/pods`, the example of a resource."""

from cortex.store import pods
from tests.support.factories import a_pod
from tests.support.http_server import HttpServer
from tests.support.postgres import sql


def test_pods_are_listed_with_how_they_feel(server: HttpServer) -> None:
    pod = a_pod(job_types=("a", "b"), slots=3)
    server.store(lambda db: pods.register(db, pod))
    told = server.get("/v1/pods", token=server.token("viewer"))
    assert told.status == 200
    (found,) = told.json["pods"]
    assert found["id"] == str(pod.id)
    assert (found["name"], found["state"], found["slots"]) == (pod.name, "READY", 3)
    assert found["job_types"] == ["a", "b"]
    assert found["heartbeat_at"].endswith("Z")
    assert told.json["now"] >= found["heartbeat_at"]


def test_ended_pods_are_listed_when_asked_for(server: HttpServer) -> None:
    pod = a_pod()
    server.store(lambda db: pods.register(db, pod))
    server.store(lambda db: pods.leave(db, pod.id))
    token = server.token("viewer")
    assert server.get("/v1/pods", token=token).json == {"pods": [], "now": None}
    (found,) = server.get("/v1/pods?ended=5", token=token).json["pods"]
    assert found["state"] == "STOPPED"


def test_a_query_that_does_not_fit_is_told_why(server: HttpServer) -> None:
    token = server.token("viewer")
    for query, why in (
        ("ended=51", "ended is 51, not 0 to 50"),
        ("ended=many", "expected int @ query.ended"),
        ("ended=", "expected int @ query.ended"),
        ("ended=1&ended=2", "query parameter 'ended' is given twice"),
        ("end=1", "unknown query parameter 'end'"),
    ):
        told = server.get(f"/v1/pods?{query}", token=token)
        assert (told.status, told.json["code"]) == (400, "usage"), query
        assert why in told.json["detail"]


def test_no_row_of_the_record_is_touched_by_reading(server: HttpServer, database: str) -> None:
    token = server.token("viewer")
    for _ in range(3):
        server.get("/v1/pods", token=token)
    assert sql(database, "SELECT count(*) AS n FROM cortex.fact")[0]["n"] == 1  # the token's making
