"""What docs/guides/mcp.md shows of the server."""

import json
import re
from pathlib import Path

import pytest

from tests.support.assistant import assistant, token_of
from tests.support.mcp_command import McpCommand
from tests.support.records.approvals import Askers

GUIDE = Path(__file__).parents[2] / "docs/guides/mcp.md"

BLOCKS = re.compile(r"```json\n(.*?)```", re.DOTALL)
VOLATILE = re.compile(r"[0-9a-f-]{36}|\d{4}-\d\d-\d\dT[\d:.]+Z")


def test_an_answer_of_a_tool_is_as_the_guide_shows(shared_database: str, askers: Askers) -> None:
    request = askers.asked(risk="MED")
    job_id = str(askers.row(request).job_id)
    with assistant(shared_database) as ask:
        found = ask("why_job", job_id=job_id).document
    shown = json.loads(BLOCKS.findall(GUIDE.read_text())[2])
    assert VOLATILE.sub("", json.dumps(found)) == VOLATILE.sub("", json.dumps(shown))


@pytest.mark.parametrize("number", range(2))
def test_a_configuration_of_the_guide_starts_it(
    mcp_command: McpCommand, shared_database: str, number: int
) -> None:
    server = json.loads(BLOCKS.findall(GUIDE.read_text())[number])["mcpServers"]["cortex"]
    command, *arguments = server["args"]
    assert (server["command"], command) == ("cortex", "mcp")
    token = token_of(shared_database, "operator")
    mcp_command.start(*arguments, env={"CORTEX_TOKEN": token} if "env" in server else {})
    listed = mcp_command.ask("tools/list")["result"]["tools"]
    names = {each["name"] for each in listed}
    assert {"submit_job", "retry_job"} <= names if arguments else "submit_job" not in names
