"""The image as an engine reads it, and jobs to run in it. CORTEX_TEST_IMAGE names another file."""

import gzip
import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[3]
IMAGE: Final = Path(os.environ.get("CORTEX_TEST_IMAGE", ROOT / "dist" / "cortex-image.tar"))
SHORT: Final = dict(
    re.findall(
        r"--env (CORTEX_[A-Z_]+_S)=(\d+)",
        (ROOT / "docs" / "guides" / "install.md").read_text("utf-8"),
    )
)
"""What the guide sets for an engine that kills ten seconds after SIGTERM."""
JOBS: Final = """\
import os
import time

import trio
from cortex import Context, job


def leave_orphans() -> int:
    for _ in range(5):
        if (child := os.fork()) == 0:
            if os.fork() == 0:
                time.sleep(0.2)
            os._exit(0)
        os.waitpid(child, 0)
    return 5


@job("orphans", timeout=300)
async def orphans(ctx: Context) -> int:
    return await ctx.step("leave", leave_orphans)


@job("wait", timeout=300)
async def wait(ctx: Context, gate: str) -> None:
    await ctx.step("begun", lambda: 1)
    while not os.path.exists(gate):
        await trio.sleep(0.05)
"""


def read_image(image: Path) -> tuple[IO[bytes], dict[str, Any]]:
    """Return the image's only layer, as a tar, and how it is run."""
    with tarfile.open(image) as tar:

        def blob(described: dict[str, Any]) -> bytes:
            file = tar.extractfile("blobs/sha256/" + described["digest"].partition(":")[2])
            assert file is not None
            return file.read()

        index_file = tar.extractfile("index.json")
        assert index_file is not None
        (listed,) = json.load(index_file)["manifests"]
        manifest = json.loads(blob(listed))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        return io.BytesIO(gzip.decompress(blob(layer))), config["config"]
