"""Import a program of packaging/, which is a file and no module of a package."""

import importlib.util
from pathlib import Path
from types import ModuleType


def program(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaging_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
