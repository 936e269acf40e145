"""An agent with files and options on pods: killed in an answer, it goes on with what it saw."""

import base64
from hashlib import sha256
from pathlib import Path

import pytest

from tests.options.files import png
from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, steps, submit, until_status
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import program

TERMS = """
temperature: 0.5
stop_sequences: [END]
parallel_calls: false
metadata: {user_id: u-1}
output: {type: object, properties: {sides: {type: integer}}, required: [sides]}
"""
PHOTO = png(640, 480)
ENCODED = base64.b64encode(PHOTO).decode()


@pytest.mark.parametrize("is_isolated", [False, True])
def test_killed_agent_continues_with_its_files(
    pods: Pods, agent: ScriptedAgent, tmp_path: Path, is_isolated: bool
) -> None:
    agent.apply("read_file", more=TERMS)
    work = tmp_path / "work"
    work.mkdir()
    (work / "photo.png").write_bytes(PHOTO)
    prompt = program(
        {"tools": [{"name": "read_file", "input": {"path": "photo.png"}}]},
        {"text": "A square.", "fault": "stall", "fault_after": 1, "times": 1},
        {"text": '{"sides": 4}'},
        mark=f"{agent.mark}  ",
    )
    payload = {"prompt": prompt, "folder": str(work), "files": ["photo.png"]}
    job_id = submit(pods.dsn, "run_agent", payload, agent=NAME)
    if is_isolated:
        sql(
            pods.dsn,
            "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = $1",
            job_id,
        )
    first = pods.start()
    eventually(lambda: agent.is_streaming(1), what="the second answer stalls")
    pods.start()
    first.kill()
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["output"] == {"sides": 4}
    assert [name for *_, name in steps(pods.dsn, job_id)] == [
        "files",
        "1 model",
        "1 read_file",
        "2 model",
        "3 model",
    ]
    kept = sql(pods.dsn, "SELECT job_id, size, content FROM cortex.job_file")
    assert [(each["job_id"], each["content"]) for each in kept] == [(job_id, PHOTO)]
    (found,) = sql(
        pods.dsn,
        "SELECT count(*) FILTER (WHERE s.output::text || coalesce(s.input, '') LIKE $2) AS copies, "
        "count(*) FILTER (WHERE s.output::text LIKE '%' || $3 || '%') AS refs "
        "FROM cortex.job_step s WHERE s.job_id = $1",
        job_id,
        f"%{ENCODED[:60]}%",
        sha256(PHOTO).hexdigest(),
    )
    assert (found["copies"], found["refs"]) == (0, 2)
    assert_one_truth(pods.dsn)
