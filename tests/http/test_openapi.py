"""The server keeps what its OpenAPI document says: asked by schemathesis, with data it makes up."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.domain.policy import JobPolicy
from cortex.http.framework.limits import Rate
from cortex.http.framework.openapi import PATH
from cortex.store import breakers, jobs
from tests.support.records.approvals import Askers
from tests.support.records.dead_letters import fail
from tests.support.records.effects import Doers
from tests.support.servers.http_server import HttpServer, http_server

SEED = 20_260_101
EXAMPLES = 3
WITHIN_S = 400.0
BOUNDED = (
    "GET /v1/jobs",
    "GET /v1/jobs/{job_id}/events",
    "POST /v1/jobs",
    "POST /v1/approvals/batch",
)
"""Operations asked at each boundary of each parameter; the others are read by the same code."""


@pytest.fixture
def server(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """A server that takes as much as comes, and wrong tokens, too."""
    monkeypatch.setattr("cortex.http.framework.auth.MISSES_MAX", 10**6)
    plenty = Rate(burst=10**6, per_s=10**6)
    with http_server(database, address_rate=plenty, token_rate=plenty) as running:
        yield running


def known_ids(server: HttpServer, askers: Askers, doers: Doers) -> dict[str, list[str]]:
    """Fill the database; return ids that lead somewhere, by the parameters of paths."""
    server.store(lambda db: jobs.ensure_types(db, {"digest": JobPolicy()}))
    server.store(lambda db: breakers.force_open(db, "llm:m", by="li", reason="x"))
    failed = fail(server.dsn, 12, steps=3, submitted={"type": "digest"})
    waiting = [askers.asked() for _ in range(4)]
    claims = doers.claimed_many(4)
    intended = [doers.begin(each) for each in claims]
    for claim, effect in zip(claims[1:], intended[1:], strict=True):
        doers.doubt(claim, effect.id)
    return {
        "job_id": [str(each) for each in failed],
        "approval_id": [str(each.id) for each in waiting],
        "effect_id": [str(each.id) for each in intended],
    }


def config_of(known: dict[str, list[str]]) -> str:
    """Settings of schemathesis: words that fit their schema may still mean nothing."""
    accepted = ["2xx", "400", "401", "403", "404", "409", "422"]
    # test_requests.py tries other methods: they are refused before any route is looked at.
    lines = ["[phases]", "examples.enabled = false", "stateful.enabled = false"]
    lines += ["coverage.unexpected-methods = []"]
    lines += ["[[operations]]", f"exclude-name = {json.dumps(BOUNDED)}"]
    lines += ["phases.coverage.enabled = false"]
    lines += ["[checks.positive_data_acceptance]", f"expected-statuses = {json.dumps(accepted)}"]
    for name, ids in known.items():
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(ids)}"]
    lines += ["[parameters]"]
    lines += [f'"path.{n}" = {{ dictionary = "{n}", probability = 0.8 }}' for n in known]
    return "\n".join(lines)


@pytest.mark.timeout(WITHIN_S + 20)
def test_the_server_keeps_its_document(
    server: HttpServer, askers: Askers, doers: Doers, tmp_path: Path
) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(config_of(known_ids(server, askers, doers)), "utf-8")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "--config-file", config),
            *("run", f"http://{server.host}:{server.port}{PATH}", "--checks", "all"),
            *("--exclude-checks", "ignored_auth"),  # test_auth.py asks every route without a token
            *("--max-examples", str(EXAMPLES)),
            *("--seed", str(SEED), "--no-shrink", "--continue-on-failure"),
            *("--header", f"Authorization: Bearer {server.token('admin')}"),
            *("--request-timeout", "10", "--workers", "1"),
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
