from cortex import ApprovalExpiredError, Context, DeniedError, job


@job
async def offer(ctx: Context, text: str) -> str:
    try:
        await ctx.approve("publish", detail={"text": text}, expires_s=3600)
    except DeniedError as denied:
        return f"denied by {denied.by}: {denied.reason}"
    except ApprovalExpiredError:
        return "nobody decided"
    return "published"
