"""Loading an application: the module or file that defines job types and tools (`--app`)."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

import cortex
from cortex.domain.errors import CortexError, UsageError
from cortex.durable.registry import Registry

_CORTEX: Final = Path(cortex.__file__).parent


def load_app(spec: str) -> ModuleType:
    """Import a dotted module, seen from the working directory, or a file by its path.

    Raises `UsageError` that names the file and line where the application's own code went wrong.
    """
    is_path = spec.endswith(".py") or "/" in spec
    try:
        return _load_file(Path(spec)) if is_path else _load_module(spec)
    except (KeyboardInterrupt, UsageError) as error:
        if isinstance(error, UsageError) and error.__cause__ is None and _place(error) is None:
            raise
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _refused(spec, error) from error
    except (Exception, SystemExit) as error:
        raise _refused(spec, error) from error


def registry_of(spec: str | None) -> Registry:
    """Return the built-in job types and those of an application."""
    from cortex.jobs import builtin_registry

    registry = builtin_registry()
    if spec is not None:
        registry.collect(load_app(spec))
    return registry


def _load_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise UsageError(f"app {str(path)!r} does not exist", hint="give a module or a .py file")
    _prepend(str(file.parent))
    name = file.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if loaded is not None or importlib.util.find_spec(name) is None:
        name = f"cortex_app_{file.stem}"
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise UsageError(f"app {str(path)!r} is not Python", hint="give a module or a .py file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(name: str) -> ModuleType:
    _prepend(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"app {name!r} is no module that can be imported from {Path.cwd()}",
                hint="give a module or a .py file",
            ) from None
        raise


def _prepend(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _refused(spec: str, error: BaseException) -> UsageError:
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename}:{error.lineno}: {error.msg}")
    place = _place(error) or spec
    if isinstance(error, CortexError):
        return UsageError(f"{place}: {error.message}", hint=error.hint)
    if isinstance(error, SystemExit):
        return UsageError(f"{place}: the app ends the process while it is imported")
    text = " ".join(str(error).split())
    return UsageError(f"{place}: {type(error).__name__}{f': {text}' if text else ''}")


def _place(error: BaseException) -> str | None:
    """File and line of the innermost frame that is neither Cortex's nor the import system's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not Path(frame.filename).is_relative_to(_CORTEX)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
