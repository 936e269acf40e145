"""Callback URLs of real pods, which are killed: one URL, one signal, no token in any record."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, run_cli
from tests.support.records.rows import job_row, submit
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.callback_app", "--http", "127.0.0.1:0")
SETTINGS = {
    "callback_secret": "a secret of this test that is long enough",
    "public_url": "https://shop.example.org/cortex",
}
TEXTS = (
    "SELECT coalesce(output::text, '') || coalesce(input::text, '') AS text FROM cortex.job_step",
    "SELECT to_json(c)::text AS text FROM cortex.callback c",
    "SELECT to_json(s)::text AS text FROM cortex.signal s",
    "SELECT to_json(j)::text AS text FROM cortex.job j",
)


def post(pod: Pod, url: str, body: Any) -> int | None:
    """POST as a provider does; return the status, None if the connection broke."""
    parts = urlsplit(pod.ready["http"])
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    path = url.removeprefix("https://shop.example.org/cortex")
    assert path != url
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def published(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize(
    "job_type, point",
    [
        ("sells", "before_callback:1"),
        ("sells", "after_callback:1"),
        ("sells", "after_act:1"),
        ("sells_apart", None),
    ],
)
def test_a_callback_survives_its_pods(
    pods: Pods, tmp_path: Path, job_type: str, point: str | None
) -> None:
    file = tmp_path / "urls"
    crash: dict[str, object] = {} if point is None else {"crash_at": point}
    first = pods.start(*APP, **SETTINGS, **crash)
    job_id = submit(pods.dsn, job_type, {"file": str(file)})
    if point in ("before_callback:1", "after_callback:1"):
        eventually(lambda: not first.is_alive, what="the pod dies")
        first = pods.start(*APP, **SETTINGS)

    def waits() -> bool:
        return bool(job_row(pods.dsn, job_id)["waiting_on"] == "signal:paid")

    eventually(waits, what="the job waits for its signal")
    (url,) = set(published(file))
    assert post(first, url, {"cents": 4800}) == 422
    status = post(first, url, {"euros": 48})
    if point == "after_act:1":
        assert status is None
        first = pods.start(*APP, **SETTINGS)
        status = post(first, url, {"euros": 48})
    assert status == 202

    def is_over() -> bool:
        return bool(job_row(pods.dsn, job_id)["status"] == "COMPLETED")

    eventually(is_over, what="the job completes")
    assert job_row(pods.dsn, job_id)["result"] == {"euros": 48}
    assert len(sql(pods.dsn, "SELECT FROM cortex.signal")) == 1
    assert post(first, url, {"euros": 7}) == 410

    token = url.partition("?t=")[2]
    assert token
    shown = run_cli("jobs", "show", str(job_id), "--json", dsn=pods.dsn, folder=pods.folder)
    found = [row["text"] for query in TEXTS for row in sql(pods.dsn, query)]
    logs = [pod.log for pod in pods.all]
    assert any("[secret API token" in text for text in found), "the step that handed it out"
    assert not [text for text in [*found, *logs, shown.stdout] if token in text]
    assert not [text for text in [*found, *logs] if SETTINGS["callback_secret"] in text]
    assert f"/callbacks/{url.partition('?')[0].rpartition('/')[2]}" in first.log


def test_a_pod_without_the_settings_fails_the_job_in_one_line(pods: Pods, tmp_path: Path) -> None:
    pods.start(*APP)
    job_id = submit(pods.dsn, "sells", {"file": str(tmp_path / "urls")})

    def has_failed() -> bool:
        return bool(job_row(pods.dsn, job_id)["status"] == "FAILED")

    eventually(has_failed, what="the job fails")
    message = job_row(pods.dsn, job_id)["error_message"]
    assert "ctx.callback_url needs setting public_url" in message
    assert "\n" not in message
    assert sql(pods.dsn, "SELECT FROM cortex.callback") == []
