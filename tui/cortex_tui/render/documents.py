"""Things as JSON for people, every sign of it visible."""

from cortex.domain.argument_rows import visible_json
from cortex.domain.phrases import to_plain


def document_text(document: object) -> str:
    r"""Return the text; what nobody would see stands there as `\u202e`."""
    return visible_json(to_plain(document))
