"""A tool's result as JSON, checked against the tool's declaration."""

from typing import Any

from cortex.agent.plain import plain, raw_text
from cortex.domain.errors import InvalidOutputError
from cortex.durable.structuring import MisfitError, structure


def checked(tool: str, result: object, declared: Any) -> object:
    """Return `result` in JSON's types; `declared` is the type that it must fit, Any for any.

    Raises `InvalidOutputError` with tool, place and reason, which keeps the raw result.
    """
    try:
        converted = plain(result)
        if declared is not Any:
            structure(converted, declared)
    except MisfitError as misfit:
        problem, *others = misfit.problems
        where = f"{problem.field} in the result" if problem.path else "the result"
        more = f" (and {len(others)} more)" if others else ""
        raise InvalidOutputError(
            f"tool {tool!r}: {where} {problem.reason}{more}",
            hint="its result must fit the declared type",
            raw=raw_text(result),
        ) from misfit
    return converted
