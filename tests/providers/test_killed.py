"""An agent of another provider on pods: killed between an answer and its tools, and handed over."""

import json
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, steps, submit, until_status
from tests.support.servers.model_apis import KEY, SIGNED, Turn, model_apis_beside
from tests.support.servers.postgres import sql

AGENT = """
name: tester
model: fake:gpt-x
fallback: ['gemini:gemini-x']
system: You test.
tools: [wait_for]
"""
ENDPOINTS = """
fake = {{kind = "openai", base_url = "{openai}", api_key = {{env = "FAKE_KEY"}}}}
gemini = {{kind = "google", base_url = "{google}", api_key = {{env = "FAKE_KEY"}}}}
"""
REVOKED = {
    "message": f"This key was revoked: {KEY}.",
    "type": "invalid_request_error",
    "code": "revoked",
}


def test_a_killed_agent_goes_on_and_another_provider_takes_over(
    pods: Pods, gate: Path, tmp_path: Path
) -> None:
    """No answer is asked for twice; the other API gets the conversation in its own shapes."""
    call = Turn(text="I wait.", calls=(("wait_for", {"gate": str(gate)}),), thinks=True)
    turns = (call, Turn(status=401, error=REVOKED), Turn(text="done"))
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT)
    with model_apis_beside(*turns) as apis:
        tables = ENDPOINTS.format(openai=apis.url("openai"), google=apis.url("google"))
        pods.environment |= {"CORTEX_MODELS": tables, "FAKE_KEY": KEY}
        ran = run_cli("agents", "apply", str(file), dsn=pods.dsn, folder=tmp_path)
        assert ran.exit_code == 0, ran.stderr
        first = pods.start()
        job_id = submit(pods.dsn, "run_agent", {"prompt": "go"}, agent="tester")
        eventually(
            lambda: [name for *_, name in steps(pods.dsn, job_id)] == ["1 model"],
            what="the answer is recorded, and its tool runs",
        )
        pods.start()
        first.kill()
        gate.touch()
        row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["text"] == "done"
    assert apis.refused == []
    assert ["input" in each for each in apis.asked] == [True, True, False]  # Google's is the last
    assert SIGNED not in str(apis.asked)
    assert KEY not in first.log
    (record,) = sql(
        pods.dsn,
        "SELECT output FROM cortex.job_step WHERE job_id = $1 AND key = '2 model'",
        job_id,
    )
    substitution = json.loads(record["output"])["substitution"]
    assert substitution["model"] == "gemini:gemini-x"
    assert "This key was revoked: [secret FAKE_KEY" in substitution["reason"]
    shown = run_cli("jobs", "show", str(job_id), dsn=pods.dsn, folder=tmp_path)
    assert "answered by other models" in shown.stdout
    assert f"gemini:gemini-x  step 3 · {substitution['reason']}" in shown.stdout
    why = run_cli("why", str(job_id), dsn=pods.dsn, folder=tmp_path)
    assert "  answered by another model: gemini:gemini-x  step 3 · " in why.stdout
    facts = run_cli("facts", "--job", str(job_id), dsn=pods.dsn, folder=tmp_path)
    assert "gemini:gemini-x is asked instead" in facts.stdout
    everything = sql(
        pods.dsn,
        "SELECT f::text FROM cortex.fact f UNION ALL SELECT s::text FROM cortex.job_step s",
    )
    assert KEY not in str(everything) + facts.stdout + shown.stdout + first.log
    assert_one_truth(pods.dsn)
