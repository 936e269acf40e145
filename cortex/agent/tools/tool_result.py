"""What a tool returned, as JSON, if it is what the tool declared."""

from typing import Any

from cortex.agent.plain import plain, raw_text
from cortex.domain.errors import InvalidOutputError
from cortex.durable.structuring import MisfitError, structure


def checked(tool: str, result: object, declared: Any) -> object:
    """`result` in the types that JSON has; `declared` is the type that it must fit, Any for any.

    Raises `InvalidOutputError` that names tool, place and reason, and keeps what came.
    """
    try:
        found = plain(result)
        if declared is not Any:
            structure(found, declared)
    except MisfitError as misfit:
        problem, *others = misfit.problems
        where = f"{problem.field} in the result" if problem.path else "the result"
        more = f" (and {len(others)} more)" if others else ""
        raise InvalidOutputError(
            f"tool {tool!r}: {where} {problem.reason}{more}",
            hint="what it returns must fit its declared type",
            raw=raw_text(result),
        ) from misfit
    return found
