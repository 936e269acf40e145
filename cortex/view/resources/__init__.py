"""One module per resource, each with its table of fields."""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from cortex.view.resource import Resource, Shape


def shapes() -> Sequence[Shape[Any]]:
    """Import all modules of this room, and return their shapes: of lists and of other rows."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {
        each: None
        for module in modules
        for each in vars(module).values()
        if isinstance(each, Shape)
    }
    return list(found)


def every() -> Sequence[Resource[Any]]:
    """Return the resources of all modules by noun."""
    found = {each.noun: each for each in shapes() if isinstance(each, Resource)}
    return [found[noun] for noun in sorted(found)]
