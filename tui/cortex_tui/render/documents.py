"""Objects as JSON for people, with every character visible."""

from cortex.domain.phrases import to_plain
from cortex.view.arguments import visible_json


def document_text(document: object) -> str:
    r"""Return the text; invisible characters appear as `\u202e`."""
    return visible_json(to_plain(document))
