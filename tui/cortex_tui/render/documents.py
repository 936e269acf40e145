"""Things as JSON for people, every sign of it visible."""

from cortex.domain.phrases import to_plain
from cortex.view.arguments import visible_json


def document_text(document: object) -> str:
    r"""Return the text; what nobody would see stands there as `\u202e`."""
    return visible_json(to_plain(document))
