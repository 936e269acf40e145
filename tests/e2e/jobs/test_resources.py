"""Resources of an application in a real pod and in the processes of isolated jobs."""

import json

from tests.support.pods import Pods, run_cli
from tests.support.records.rows import until_status
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.resource_app")


def test_jobs_share_what_their_process_has_opened(pods: Pods) -> None:
    pod = pods.start(*APP, isolated_slots=1)
    query = "SELECT cortex.submit_job($1, '{\"number\": 7}') AS id"
    for kind, total in [("shared", "15"), ("shared", "40"), ("apart", "15"), ("apart", "40")]:
        (row,) = sql(pods.dsn, query, kind)
        until_status(pods.dsn, row["id"], "COMPLETED")
        (result,) = sql(pods.dsn, "SELECT result FROM cortex.job WHERE id = $1", row["id"])
        assert json.loads(result["result"]) == {"number": 7, "total": total}
    assert pod.stop() == 0


def test_a_pod_without_its_resource_does_not_start(pods: Pods) -> None:
    done = run_cli(
        "up", *APP, "--json", dsn=pods.dsn, folder=pods.folder, extra={"RESOURCE": "does not open"}
    )
    assert (done.exit_code, done.stdout) == (1, "")
    message = json.loads(done.stderr.splitlines()[-1])["error"]["message"]
    assert message.startswith("resource counter (")
    assert message.endswith("failed to open: ConnectionRefusedError: nobody listens")
    assert sql(pods.dsn, "SELECT FROM cortex.pod WHERE ended_at IS NULL") == []
