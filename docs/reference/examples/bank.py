from pathlib import Path

from cortex import Applied, Context, Invocation, NotApplied, ToolContext, Unknown, job, tool

BANK = Path("bank")  # stands for a bank: one file is one payment


async def find_payment(invocation: Invocation) -> Applied | NotApplied | Unknown:
    if not BANK.exists():
        return Unknown("the bank does not answer")  # a person decides
    receipt = BANK / str(invocation.id)
    return Applied(receipt.name) if receipt.exists() else NotApplied()


@tool(effect=True, reconcile=find_payment, risk="MED", says="money leaves the account")
def pay(context: ToolContext, customer: str, euros: float) -> str:
    """Pay a customer."""
    receipt = BANK / str(context.invocation.id)
    receipt.write_text(f"{customer}: {euros:.2f}")
    return receipt.name


@job
async def settle(ctx: Context, customer: str, euros: float) -> str:
    return await ctx.tool("pay", pay, {"customer": customer, "euros": euros})
