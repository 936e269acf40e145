"""What one test lets the process know, the next one must not find known."""

import pytest

from cortex.domain import redaction


def forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no known secrets, and leave the process as it was when the test ends."""
    process = redaction._process
    for name, value in (("_values", {}), ("_patterns", {}), ("_known", None)):
        monkeypatch.setattr(process, name, value)
