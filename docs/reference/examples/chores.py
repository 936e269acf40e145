import asyncio
from datetime import datetime
from pathlib import Path

from cortex import Concurrency, Context, Invocation, ModelOptions, Rate, ToolContext, job, tool


async def outline(text: str) -> list[str]:  # stands for code of an asyncio library
    await asyncio.sleep(0)
    return text.split()


def store(invocation: Invocation, text: str) -> str:
    file = Path(f"{invocation.id}.txt")  # the same on every repetition
    file.write_text(text)
    return file.name


@tool
def sign(context: ToolContext, text: str) -> str:
    """Sign a text with the agent's key."""
    return f"{text} ({len(context.secret('SIGNING_KEY'))} letters sign this)"


@job(limits=[Concurrency(5, key="tenant"), Rate(100, per="minute", key="tenant")])
async def remind(ctx: Context, text: str, at: datetime) -> str:
    words = await ctx.asyncio(outline, text)
    await ctx.sleep_until("the hour", at)
    if ctx.patched("2027-01 politeness"):  # older jobs go on without
        messages = [{"role": "user", "content": f"Say politely: {' '.join(words)}"}]
        exact = ModelOptions(temperature=0)
        answer = await ctx.llm(
            "rephrase", model="claude-haiku-4-5", messages=messages, options=exact
        )
        text = answer.text
        await ctx.sleep("a moment", 0.1)
    signed = await ctx.tool("sign", sign, {"text": text})
    return await ctx.effect("store", store, signed, idempotent=True)
