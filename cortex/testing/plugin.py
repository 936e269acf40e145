"""The pytest plugin, which registers itself: the fixture `cortex`, and its async tests.

Imports what runs jobs only for tests that use the fixture.
"""

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cortex.testing.harness import Cortex


@pytest.fixture
def cortex() -> Iterator["Cortex"]:
    """Run jobs in memory; see `cortex.testing.Cortex`."""
    from cortex.testing.harness import Cortex  # noqa: PLC0415 -- heavy, and most tests need none

    with Cortex() as harness:
        yield harness


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test of the fixture on trio, unless another plugin runs it."""
    function = pyfuncitem.obj
    if "cortex" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(function):
        return None
    import trio  # noqa: PLC0415 -- heavy, and most tests need none

    arguments = inspect.signature(function).parameters.keys() & pyfuncitem.funcargs.keys()
    values = {name: pyfuncitem.funcargs[name] for name in arguments}

    async def run() -> None:
        await function(**values)

    trio.run(run)
    return True
