"""Objects as JSON for people, with every character visible."""

from cortex.domain.key_shapes import masked_value
from cortex.domain.phrases import to_plain
from cortex.view.arguments import visible_json


def document_text(document: object) -> str:
    r"""Return the text; invisible characters appear as `\u202e`."""
    return visible_json(masked_value(to_plain(document)))
