"""JSON that is nested so deeply that who walks through it, by recursion, would fall over."""

import re
from typing import Final

DEPTH_MAX: Final = 254
"""What orjson writes, so nothing that Cortex wrote is deeper; Postgres takes several thousand."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def is_deep(text: str) -> bool:
    """Return whether JSON, or the beginning of some, is nested deeper than `DEPTH_MAX`."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case _:
                pass  # a string
        if depth > DEPTH_MAX:
            return True
    return False
