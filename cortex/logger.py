"""The logger of modules that applications import.

structlog takes long to import, compared with what a job's code needs of Cortex. So it is imported
when the first line is logged; pods import it anyway.
"""

from functools import cached_property
from importlib import import_module
from typing import Any


class Logger:
    """A structlog logger of one module."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _logger(self) -> Any:
        return import_module("cortex.plain_structlog").structlog.get_logger(self._name)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._logger, method)
