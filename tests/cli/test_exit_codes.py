import uuid
from collections.abc import Callable

import pytest

from cortex.cli.failures import EXIT_CODES
from tests.cli.conftest import Cortex, Life  # type: ignore[import-not-found, unused-ignore]


def test_help_names_every_exit_code(cortex_nowhere: Cortex) -> None:
    shown = cortex_nowhere("--help")
    assert shown.code == 0
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<4} {meaning}" in shown.out.replace("  130  ", "  130  ")
