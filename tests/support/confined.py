"""Runs a program confined, as a pod of this process's user would; for tests that change users.

Run as `python -m tests.support.confined TERMS`: TERMS is JSON with `means`, `workspace`, `folder`,
`hidden` and `argv`, and may have `network` and `writes`. Prints how it ended as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.process import run_confined
from cortex.domain.confinement import Confinement


def main(terms: dict[str, Any]) -> None:
    async def run() -> None:
        confiner = Confiner(
            means=Confinement(terms["means"]), hidden=tuple(map(Path, terms["hidden"]))
        )
        launch = confiner.launch(
            workspace=Path(terms["workspace"]),
            folder=Path(terms["folder"]),
            has_network=terms.get("network", False),
            writes=terms.get("writes", True),
        )
        done = await run_confined(
            terms["argv"], launch=launch, timeout_s=60, output_max_bytes=1_000_000
        )
        sys.stdout.write(json.dumps(attrs.asdict(done)))

    trio.run(run)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
