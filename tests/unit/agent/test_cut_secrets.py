"""Where output is cut, no part of a secret is left."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cortex.agent.confinement import process
from cortex.agent.confinement.process import CappedOutput
from cortex.agent.tools import read_file as reading
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.tool import ToolContext
from cortex.domain.redaction import Redactor

SECRET = "Zq7-Kx2_Wm9.Pv4"
PARTS = [SECRET[at : at + 4] for at in range(len(SECRET) - 3)]


@pytest.fixture(autouse=True)
def redactor(monkeypatch: pytest.MonkeyPatch) -> Redactor:
    known = Redactor()
    known.register("TOKEN", SECRET)
    for module in (process, reading):
        for name in ("begun_in", "ended_in", "knows_any", "redact"):
            monkeypatch.setattr(module, name, getattr(known, name), raising=False)
    return known


def parts_in(redactor: Redactor, text: str) -> list[str]:
    return [part for part in PARTS if part in redactor.redact(text)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 40), st.integers(1, 30))
def test_no_part_is_left_at_a_cap(
    redactor: Redactor, before: int, after: int, half: int, chunk: int
) -> None:
    whole = f"{'a' * before}{SECRET}{'é' * after}".encode()
    output = CappedOutput(2 * half)
    for at in range(0, len(whole), chunk):
        output.add(whole[at : at + chunk])
    assert parts_in(redactor, output.text()) == []


async def test_no_part_is_left_in_any_page(context: ToolContext, redactor: Redactor) -> None:
    content = f"{'a' * 20}{SECRET}{'b' * 20}"
    (context.workspace / "f").write_text(content)
    for offset in range(len(content)):
        text = str(await read_file.call(context, {"path": "f", "offset": offset, "limit": 24}))
        assert parts_in(redactor, text) == [], offset
