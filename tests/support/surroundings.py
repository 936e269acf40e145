"""Hide the folders, settings and databases of the person who runs the tests.

`isolate` runs before any other module of Cortex or its tests is imported, and changes the
environment of the test process itself. Subprocesses inherit it. `heed_signals` does the same for
signals that this process was started to ignore.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

NOT_OURS: Final = ("ANTHROPIC_", "CORTEX_", "GEMINI_", "GOOGLE_", "OPENAI_", "PG", "XDG_")
"""Settings of Cortex, of Postgres clients and of the model client, and the user's folders."""
OURS: Final = ("CORTEX_FUZZ_", "CORTEX_TEST_")
"""Settings of the tests themselves."""
WORKER: Final = "PYTEST_XDIST_WORKER"


def isolate(environ: MutableMapping[str, str] = os.environ) -> None:
    """Replace the user's home with an empty one and forget the user's settings.

    Workers of xdist inherit what the process that started them has isolated.
    """
    if WORKER in environ:
        return
    home = Path(tempfile.mkdtemp(prefix="cortex-tests-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    installers = _installers(environ)
    for name in list(environ):
        if name.startswith(NOT_OURS) and not name.startswith(OURS):
            del environ[name]
    # Root's data folder is not below its home: it has to be named.
    environ.update(installers, HOME=str(home), CORTEX_DATA=str(home / "data"))
    # Servers of tests are reached directly, whatever proxy the machine has for installers.
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join(filter(None, (environ.get(name), "127.0.0.0/8,localhost,::1")))
    # Each worker and each process would compile all that it imports: a third of a run's CPU.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def heed_signals() -> None:
    """Let programs that tests start receive the signals that `nohup … &` has made this one ignore.

    A program inherits what is ignored, but not what is handled. Tests in this process see SIGINT as
    they do anywhere; a hang-up still does not end it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _installers(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Places of the settings of pip and uv; only the README's own commands install packages."""
    home = Path(environ.get("HOME") or Path.home())
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    places = {
        "PIP_CONFIG_FILE": config / "pip" / "pip.conf",
        "UV_CACHE_DIR": cache / "uv",
        "UV_CONFIG_FILE": config / "uv" / "uv.toml",
    }
    return {
        name: str(place) for name, place in places.items() if name not in environ and place.exists()
    }
