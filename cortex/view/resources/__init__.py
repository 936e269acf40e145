"""One module per resource, each with its table of fields."""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from cortex.view.resource import Resource


def every() -> Sequence[Resource[Any]]:
    """Import all modules of this room, and return their resources by noun."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {
        each.noun: each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, Resource)
    }
    return [found[noun] for noun in sorted(found)]
