"""Forget the secrets of one test before the next one."""

import pytest

from cortex.domain import redaction


def forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no known secrets, and leave the process as it was when the test ends."""
    process = redaction._process
    for name, value in (("_values", {}), ("_patterns", {}), ("_known", None)):
        monkeypatch.setattr(process, name, value)
