"""Programs that tests need and no Python environment has: a browser, a compiler, and others.

Where one is absent, its tests are skipped, and the last lines of the run name it. With
`CORTEX_TEST_INSIST=1` they fail instead: the gate sets it.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import attrs
import pytest

INSIST: Final = "CORTEX_TEST_INSIST"
FOLDERS: Final = "/usr/sbin:/sbin"
"""Debian has servers' programs here, which are not on the PATH of an ordinary user."""


@attrs.frozen
class OutsideProgram:
    """One program, by any of its names."""

    names: tuple[str, ...]
    packages: str
    """What `apt-get install` needs."""
    header: str | None = None
    """A file that it needs besides."""

    def find(self) -> str | None:
        """Return its path; None where it is absent."""
        if self.header is not None and not Path(self.header).exists():
            return None
        path = f"{os.environ['PATH']}:{FOLDERS}"
        return next(filter(None, (shutil.which(name, path=path) for name in self.names)), None)

    def needed(self) -> str:
        """Return its path; where it is absent, skip the test, or fail it if the run insists."""
        found = self.find()
        if found is not None:
            return found
        reason = f"no {self.names[0]} on this machine: apt-get install {self.packages}"
        if os.environ.get(INSIST) == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


BROWSER: Final = OutsideProgram(
    ("chromium", "chromium-browser", "google-chrome"), "chromium fonts-dejavu-core"
)
COMPILER: Final = OutsideProgram(("cc",), "gcc libc6-dev libzstd-dev", "/usr/include/zstd.h")
PGBOUNCER: Final = OutsideProgram(("pgbouncer",), "pgbouncer")
PROMTOOL: Final = OutsideProgram(("promtool",), "prometheus")

NODE_MODULES: Final = "CORTEX_TEST_NODE_MODULES"
"""Where `npm ci` has installed the MCP servers of tests/support/mcp_servers: not in the tree."""


def node_server(name: str) -> Path:
    """Return an MCP server's program for Node; where it is absent, skip the test, or fail it."""
    installed = os.environ.get(NODE_MODULES, "")
    found = Path(installed) / "@modelcontextprotocol" / name / "dist" / "index.js"
    if installed and NODE.find() is not None and found.exists():
        return found
    reason = f"no {name}: npm ci in a copy of tests/support/mcp_servers, and set {NODE_MODULES}"
    if os.environ.get(INSIST) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


NODE: Final = OutsideProgram(("node", "nodejs"), "nodejs npm")
