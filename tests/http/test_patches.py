"""`/v1/patches`: which jobs still need which branch."""

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.life import Life
from tests.support.servers.http_server import HttpServer


def test_patches_are_listed_with_the_jobs_that_need_each_branch(server: HttpServer) -> None:
    with open_session(Profile(dsn=server.dsn)) as call:
        life = Life(call, server.dsn)
        life.type()
        pod, job_id = life.pod(), life.job()
        life.patch(pod, life.claim(pod), 1, "new way", is_new=False)
    (row,) = server.get("/v1/patches", token=server.token("viewer")).json["patches"]
    assert (row["patch"], row["type"]) == ("new way", "digest")
    assert (row["old"], row["new"], row["old_job"]) == (1, 0, str(job_id))
