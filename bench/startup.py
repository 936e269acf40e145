"""Time from `cortex up` on an initialised data directory to a ready pod."""

import time
from pathlib import Path
from typing import Any

from cortex.bench.processes import Program
from cortex.postgres.embedded import server


def startup(folder: Path, *, repeats: int) -> dict[str, Any]:
    """Start and stop a pod with its own embedded server; report seconds to ready.

    Includes the interpreter, the imports, Postgres and the migration check.
    """
    data = folder / "startup"
    with server.acquire(data):
        pass  # initialises the directory
    log = folder / "startup.log"
    Program(["cortex", "up", "--data", str(data), "--json"], {}, log).stop()
    took_s = []
    for _ in range(repeats):
        began = time.perf_counter()
        program = Program(["cortex", "up", "--data", str(data), "--json"], {}, log)
        took_s.append(time.perf_counter() - began)
        program.stop()
    took_s.sort()
    return {
        "repeats": repeats,
        "ready_s": round(took_s[len(took_s) // 2], 3),
        "max_s": round(took_s[-1], 3),
    }
