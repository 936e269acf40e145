# test_app.py
"""Tests of the jobs: in memory, without a database."""

from pathlib import Path

import pytest
from cortex.testing import Cortex

from app import refund_order


async def test_large_refund_is_paid_after_a_person_agreed(
    cortex: Cortex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cortex.approve_all()
    run = await cortex.run(refund_order, number="1042")
    assert run.result == "refunded 48.0 euros to Ada"
    assert run.steps == ["find order", "large refund", "refund"]
    run.replays()  # the same steps again, from the record
