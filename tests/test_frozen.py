"""Names that programs read stay: those of the HTTP API, and of documents of the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.frozen import API, DOCUMENTS, api_lines, document_lines


@pytest.mark.parametrize(
    "file, read", [(API, api_lines), (DOCUMENTS, document_lines)], ids=["http", "documents"]
)
def test_names_that_programs_read_stay(file: Path, read: Callable[[], list[str]]) -> None:
    kept, lines = file.read_text("utf-8").splitlines(), read()
    gone = sorted(set(kept) - set(lines))
    assert not gone, "programs read these"
    new = sorted(set(lines) - set(kept))
    assert not new, "add them: python -m tests.support.generate frozen"
