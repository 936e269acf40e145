"""Pictures of the approval page for the README: `python -m tests.support.screenshots [FOLDER]`.

They show the real server, a request as an agent makes it, and Chromium.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.job import Submission
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from cortex.store import jobs, specs, tasks
from cortex.store.specs import SpecKind
from tests.support.outside_programs import BROWSER
from tests.support.png import smaller
from tests.support.reader import path_of
from tests.support.records.approvals import Askers, a_request
from tests.support.records.rows import new_id
from tests.support.servers.browser import Browser, Page
from tests.support.servers.http_server import HttpServer, http_server
from tests.support.servers.postgres import SharedPostgres, make_run_dir, remove_servers, sql

BYTES_MAX: Final = 150_000
AGENT_JOB: Final = "run_agent"
ARGUMENTS: Final = {
    "customer": "cus_88",
    "amount": 1240.0,
    "currency": "EUR",
    "memo": "goodwill \u202e24.21 RUE",
    "notify": {"to": "a.mueller@example.org", "template": "refund-done"},
}


def ask(call: Session, dsn: str) -> ApprovalRequest:
    """Let an agent ask for a refund that its model got wrong."""
    spec = {"model": "claude"}
    call(specs.apply, SpecKind.AGENT, new_id=new_id(), name="refund-bot", spec=spec, by="li")
    job = Submission(id=new_id(), type=AGENT_JOB, agent="refund-bot")
    call(jobs.submit, [job], by="li")
    call(tasks.promote)
    askers = Askers(call, dsn)
    (claim,) = call(tasks.claim, pod_id=askers.pod_id, types=[AGENT_JOB], limit=1)
    request = a_request(
        ARGUMENTS,
        tool="stripe.refund",
        key="3 stripe.refund",
        risk="HIGH",
        effect="Refunds a card payment: money leaves the account",
        policy="Refunds above 500 EUR ask a person",
        said="The customer was overcharged by twelve forty, so I will refund twelve forty.",
        expires_s=900.0,
    )
    askers.suspend(claim, request)
    head = json.dumps({"seq": 3, "cost_usd": "0.0213"})
    sql(dsn, "UPDATE cortex.job_record SET checkpoint = $2::jsonb WHERE id = $1", job.id, head)
    return request


def look(page: Page, server: HttpServer, request: ApprovalRequest) -> Page:
    """Sign in and wait until the page is as people see it."""
    page.open(f"http://127.0.0.1:{server.port}{path_of(request)}")
    page.type("#token", server.token("approver"))
    with page.loading():
        page.click("button.main")
    page.until("getComputedStyle(document.querySelector('button.approve')).opacity === '1'")
    return page


def take(folder: Path, dsn: str) -> None:
    """Write the pictures."""
    executable = BROWSER.find()
    assert executable, "no browser, no pictures"
    with (
        tempfile.TemporaryDirectory() as profile,
        open_session(Profile(dsn=dsn, hot_path=True)) as call,
        http_server(dsn) as server,
    ):
        request = ask(call, dsn)
        browser = Browser(executable, Path(profile))
        try:
            desktop = look(browser.page(width=920, height=1000), server, request)
            desktop.screenshot(folder / "approval-desktop.png", is_whole=True)
            phone = browser.page(width=390, height=844, scale=2, is_phone=True, is_dark=True)
            look(phone, server, request).screenshot(folder / "approval-phone.png")
        finally:
            browser.close()


def main(folder: Path) -> None:
    """Start what is needed, take the pictures, make them small."""
    run_dir, lock = make_run_dir()
    postgres = SharedPostgres(run_dir)
    try:
        folder.mkdir(exist_ok=True)
        take(folder, postgres.create_migrated())
    finally:
        postgres.release()
        remove_servers(run_dir)
        lock.close()
    for path in sorted(folder.glob("approval-*.png")):
        path.write_bytes(smaller(path.read_bytes()))
        size = path.stat().st_size
        assert size < BYTES_MAX, f"{path} has {size:,} bytes"
        sys.stdout.write(f"{path}: {size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "packaging/pictures"))
