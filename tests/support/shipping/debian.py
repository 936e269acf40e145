"""Root file systems of Debian, made by mmdebstrap and kept for the next run."""

import shutil
import subprocess
import tempfile
from pathlib import Path


def kept_debian(release: str, *options: str, name: str) -> Path:
    """Return the root of a release; `name` is that of its folder below the temporary directory.

    Only the first run needs root and mmdebstrap. Delete the folder after a change of the options.
    """
    kept = Path(tempfile.gettempdir(), name)
    root, done = kept / "root", kept / "done"
    if not done.exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(mode=0o755, parents=True)
        subprocess.run(["mmdebstrap", "--quiet", *options, release, root], check=True)
        done.touch()
    return root
