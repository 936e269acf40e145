"""`/v1/pods`, the example of a resource."""

from operator import itemgetter

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import drains, pods
from tests.support.life import Life
from tests.support.records.factories import a_pod
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql


def test_pods_are_listed_with_how_they_feel(server: HttpServer) -> None:
    pod = a_pod(job_types=("a", "b"), slots=3)
    server.store(lambda db: pods.register(db, pod))
    output = server.get("/v1/pods", token=server.token("viewer"))
    assert output.status == 200
    (found,) = output.json["pods"]
    assert found["id"] == str(pod.id)
    assert (found["name"], found["state"], found["slots"]) == (pod.name, "READY", 3)
    assert found["job_types"] == ["a", "b"]
    assert found["heartbeat_at"].endswith("Z")
    assert output.json["now"] >= found["heartbeat_at"]


def test_pods_show_leases_and_where_drained_jobs_moved(server: HttpServer) -> None:
    with open_session(Profile(dsn=server.dsn)) as call:
        life = Life(call, server.dsn)
        life.type()
        pod, other = life.pod("pod-1"), life.pod("pod-2")
        life.job()
        claim = life.claim(pod)
        life.call(drains.request, pod, by="ana", reason="deploy")
        life.release(pod, claim, "handed_back")
        life.claim(other)
    output = server.get("/v1/pods", token=server.token("viewer")).json["pods"]
    drained, busy = sorted(output, key=itemgetter("name"))
    assert drained["moved"] == {
        "groups": [{"what": "runs", "pod": "pod-2", "count": 1}],
        "is_whole": True,
    }
    assert (drained["running"], drained["oldest_lease_at"]) == (0, None)
    assert (busy["running"], busy["moved"]) == (1, None), "it has not beaten since it claimed that"
    assert busy["oldest_lease_at"] >= busy["longest_claim_at"]
    assert "connections" in busy


def test_ended_pods_are_listed_when_asked_for(server: HttpServer) -> None:
    pod = a_pod()
    server.store(lambda db: pods.register(db, pod))
    server.store(lambda db: pods.leave(db, pod.id))
    token = server.token("viewer")
    assert server.get("/v1/pods", token=token).json == {"pods": [], "now": None}
    (found,) = server.get("/v1/pods?ended=5", token=token).json["pods"]
    assert found["state"] == "STOPPED"


def test_a_query_that_does_not_fit_is_documented_why(server: HttpServer) -> None:
    token = server.token("viewer")
    for query, why in (
        ("ended=51", "ended is 51, not 0 to 50"),
        ("ended=many", 'query.ended must be a whole number, got "many"'),
        ("ended=", 'query.ended must be a whole number, got ""'),
        ("ended=1&ended=2", "query parameter 'ended' is given twice"),
        ("end=1", "unknown query parameter 'end'"),
    ):
        output = server.get(f"/v1/pods?{query}", token=token)
        assert (output.status, output.json["code"]) == (400, "usage"), query
        assert why in output.json["detail"]


def test_no_row_of_the_record_is_touched_by_reading(server: HttpServer, database: str) -> None:
    token = server.token("viewer")
    before = sql(database, "SELECT count(*) AS n FROM cortex.fact")[0]["n"]
    for _ in range(3):
        server.get("/v1/pods", token=token)
    assert sql(database, "SELECT count(*) AS n FROM cortex.fact")[0]["n"] == before
