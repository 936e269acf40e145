"""Text that others wrote, in a message to people: quoted, and not to be taken for the runtime's.

People decide by a message in a chat where to click and what to agree to. So the text of an agent
or a job names its author first, each of its lines is quoted, its links are no links, and
it may not use the words in which Cortex asks people.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.messages.topic import RUNTIME_TOPICS
from cortex.domain.safe import safe

FROM: Final = "from"
"""Key of a payload that others wrote: whose text it is."""
MARK: Final = "> "
RESERVED: Final = (
    "approval needed",
    "approval required",
    "approval requested",
    "waits for a decision",
    "waiting for a decision",
    "who decides",
    "with the role approver",
    "cortex approvals",
)
"""Phrases of requests for approval, without signs between the words."""
_PAGE: Final = re.compile(r"/approvals\b")
_TOPIC: Final = re.compile(rf"\b({'|'.join(map(re.escape, RUNTIME_TOPICS))})\b")
_NO_WORD: Final = re.compile(r"[\W_]+")
_LOOKALIKES: Final = str.maketrans(
    "аеорсухіјѕԁһӏԛԝгпкмтвнοαινρτυκχεωɑɡıⅼ", "aeopcyxijsdhlqwrnkmtbhoaivptukxewagil"
)
"""Letters of Cyrillic, Greek and others that look like the Latin ones of the phrases."""
_SCHEME: Final = re.compile(r"(?<=\w):(?=//)")
_DOT: Final = re.compile(
    r"(?<=[^\s_!-/:-@\[-`{-~])[.\u3002\uff0e\uff61](?=[^\W\d_](?:[^\W\d_]|[^\x00-\x7f\s]))"
)
"""Dots that chats and mail programs take for those of a host: no ending is too rare for that. In
many scripts its words have marks, which are no letters."""
_DOT_OF_ADDRESS: Final = re.compile(r"(?<=//)[^\s/?#]+")


def reserved_in(value: Any) -> str | None:
    """Return the first words in a text, or in the texts of a JSON value, that are the runtime's."""
    if isinstance(value, Mapping):
        parts = [*value.keys(), *value.values()]
        return next((found for each in parts if (found := reserved_in(each))), None)
    if isinstance(value, list | tuple):
        return next((found for each in value if (found := reserved_in(each))), None)
    if not isinstance(value, str):
        return None
    folded = "".join(
        each
        for each in unicodedata.normalize("NFKD", value)
        if unicodedata.category(each) not in {"Mn", "Cf", "Cc"} or each in "\n\t"
    )
    folded = folded.casefold().translate(_LOOKALIKES)
    if (match := _PAGE.search(folded) or _TOPIC.search(folded)) is not None:
        return match[0]
    words = f" {_NO_WORD.sub(' ', folded)} "
    return next((each for each in RESERVED if f" {each} " in words), None)


def unlinked(text: str) -> str:
    """Return a text in which no program finds a link: `https[:]//example[.]org`."""
    text = _DOT_OF_ADDRESS.sub(lambda match: match[0].replace(".", "[.]"), text)
    return _DOT.sub("[.]", _SCHEME.sub("[:]", text))


def harmless(value: Any) -> Any:
    """Return a JSON value whose texts show all their characters and hold no link.

    Lines stay lines: `quoted` marks each of them.
    """
    if isinstance(value, str):
        return unlinked(safe(value, newline="\n"))
    if isinstance(value, Mapping):
        return {unlinked(safe(str(key))): harmless(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(each) for each in value]
    return value


def author(*, agent: str | None, job: str) -> str:
    """Return whose text it is, for its first line."""
    return f"job {job}" if agent is None else f"agent {agent}, job {job}"


def first_line(whose: str) -> str:
    """Return the line before a text that others wrote."""
    return f"From {safe(whose)}, quoted:"


def quoted(text: str) -> str:
    """Return a text each of whose lines is marked as quoted."""
    return "\n".join(f"{MARK}{line}".rstrip() for line in text.split("\n"))
