"""`/metrics`: for those who have a token, with the requests counted by their routes."""

from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import eventually
from tests.support.records.rows import new_id, submit
from tests.support.servers.http_server import HttpServer


def counted(server: HttpServer, token: str) -> dict[tuple[str, str, str], float]:
    """Requests by route, method and status."""
    output = server.get("/metrics", token=token)
    assert output.status == 200
    assert output.headers["content-type"].startswith("text/plain")
    return {
        (sample.labels["route"], sample.labels["method"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(output.body.decode())
        for sample in family.samples
        if sample.name == "cortex_http_requests_total"
    }


def test_metrics_need_a_token(server: HttpServer) -> None:
    assert server.get("/metrics").status == 401
    assert server.get("/metrics", token=server.token("approver")).status == 200


def test_requests_are_counted_by_route_and_never_by_path(server: HttpServer) -> None:
    token = server.token("viewer")
    job_id = submit(server.dsn, "digest")
    server.get(f"/v1/jobs/{job_id}", token=token)
    for _ in range(2):
        server.get(f"/v1/jobs/{new_id()}", token=token)
    server.get("/v1/nothing/secret", token=token)
    server.ask("BREW", "/v1/jobs", token=token)
    server.get("/v1/jobs")
    wanted = {
        ("/v1/jobs/{job_id}", "GET", "200"): 1.0,
        ("/v1/jobs/{job_id}", "GET", "404"): 2.0,
        ("other", "GET", "404"): 1.0,
        ("/v1/jobs", "other", "405"): 1.0,
        ("/v1/jobs", "GET", "401"): 1.0,
    }
    eventually(lambda: wanted.items() <= counted(server, token).items(), what="all are counted")
    page = server.get("/metrics", token=token).body
    assert b"secret" not in page
    assert str(job_id).encode() not in page
    assert b"cortex_jobs{" in page


def test_a_client_that_leaves_is_counted_too(server: HttpServer) -> None:
    token = server.token("viewer")
    job_id = submit(server.dsn, "digest")
    with server.connect() as connection:
        head = f"GET /v1/jobs/{job_id}/result HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
        connection.sendall(f"{head}\r\n\r\n".encode())
        eventually(lambda: len(server.hall.waiters) == 1, what="it waits")
    left = ("/v1/jobs/{job_id}/result", "GET", "499")
    eventually(lambda: counted(server, token).get(left) == 1, what="it is counted")
