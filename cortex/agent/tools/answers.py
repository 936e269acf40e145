"""Has people answer what servers ask during a call, and makes the call again with the answer."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from cortex.agent.mcp import schemas
from cortex.agent.mcp.questions import Question
from cortex.domain.errors import ApprovalExpiredError, DeniedError
from cortex.durable.context import Context

QUESTION: Final = "question"
"""Key of the recorded output of a call that a server ended with a question."""
QUESTIONS_MAX: Final = 5
"""Of one call of a model; then it gets the question as the tool's error."""

Again = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Makes the call again, as a step of this name, with answers by the question's digest."""


async def answered(
    ctx: Context, name: str, first: Awaitable[Any], again: Again, *, failed: Callable[[str], Any]
) -> Any:
    """Return the output of a call once its server has no more questions.

    Each question and each call is a recorded step. `failed` makes the output of a text for the
    model.
    """
    output, answers = await first, dict[str, Any]()
    for number in range(1, QUESTIONS_MAX + 1):
        if not isinstance(output, dict) or QUESTION not in output:
            return output
        question = Question.from_json(output[QUESTION])
        try:
            decision = await ctx.approve(
                f"{name} question {number}",
                detail=question.blank,
                schema=question.form,
                effect=f"answers MCP server {question.server}",
                reason=f"{question.server} asks: {question.message}",
            )
        except (DeniedError, ApprovalExpiredError) as error:
            return failed(f"nobody answered {question.message!r}: {error.message}")
        what = f"the question of MCP server {question.server!r}"
        if wrong := schemas.problems(question.schema, decision.arguments, what=what):
            return failed(f"the answer to {question.message!r}: {wrong[0].reason}")
        answers[question.digest] = decision.arguments
        output = await again(f"{name} answer {number}", answers)
    return failed(f"the tool asked more than {QUESTIONS_MAX} questions")
