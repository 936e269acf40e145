"""What docs/guides/mcp.md shows of the server."""

import json
import re
from pathlib import Path

import pytest

from tests.support.assistant import token_of
from tests.support.mcp_command import McpCommand

GUIDE = Path(__file__).parents[2] / "docs/guides/mcp.md"


@pytest.mark.parametrize("number", range(2))
def test_a_configuration_of_the_guide_starts_it(
    mcp_command: McpCommand, shared_database: str, number: int
) -> None:
    text = GUIDE.read_text()
    found = re.findall(r"```json\n(.*?)```", text, re.DOTALL)[number]
    server = json.loads(found)["mcpServers"]["cortex"]
    command, *arguments = server["args"]
    assert (server["command"], command) == ("cortex", "mcp")
    token = token_of(shared_database, "operator")
    mcp_command.start(*arguments, env={"CORTEX_TOKEN": token} if "env" in server else {})
    listed = mcp_command.ask("tools/list")["result"]["tools"]
    names = {each["name"] for each in listed}
    assert {"submit_job", "retry_job"} <= names if arguments else "submit_job" not in names
