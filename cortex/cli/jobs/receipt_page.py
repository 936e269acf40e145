"""The receipt of a time-out, for people."""

from collections.abc import Iterator
from typing import Final

from cortex.cli.screen.terminal import Terminal
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.domain.timeouts import (
    Choice,
    FinalAction,
    Interruption,
    Phase,
    TimeoutReceipt,
    WorkTree,
    recommended_choice,
)
from cortex.store.timeouts import Recorded
from cortex.view.cells import pad
from cortex.view.phrases import size
from cortex.view.steps import numbered_step, step_label

LABEL_CELLS: Final = 12
TEXT_LINES_MAX: Final = 5
FILES_MAX: Final = 8

ACTIONS: Final = {
    FinalAction.RETRIED_CALL: "called again within the step",
    FinalAction.TOLD_MODEL: "reported to the model, which went on",
    FinalAction.RELEASED: "retried by the worker layer",
    FinalAction.RETRY: "retried later, as an application retry",
    FinalAction.FAILED: "failed the job",
}
PHASES: Final = {
    Phase.MODEL: "waiting for the model",
    Phase.TOOL: "in a tool",
    Phase.EFFECT: "in an effect",
    Phase.STEP: "in a step of the job's own",
    Phase.HANDLER: "between two steps",
}
CHOICES: Final = {
    Choice.RETRY_STEP: "run the step again with everything as it is",
    Choice.DISCARD_AND_RETRY: ("set aside what the step left (nothing is lost), then run it again"),
    Choice.ESCALATE: "leave it to an operator",
}


def block(recorded: Recorded, terminal: Terminal) -> Iterator[str]:
    receipt = recorded.receipt
    text = receipt.interruption
    at = terminal.clock(recorded.at)
    head = f"{text.scope} time-out after {span(text.elapsed_s)}, limit {span(text.limit_s)}"
    yield f"{terminal.paint(head, 'bold')}  {terminal.paint(at, 'dim')}"
    lines = {
        "step": _step(text),
        "checkpoint": _checkpoint(text),
        "then": f"{ACTIONS[text.final_action]} · attempt {text.lease.attempt}",
        "answer": _answer(text.partial_text),
        **files(receipt),
    }
    if text.final_action.ended_attempt:
        choice = recommended_choice(receipt)
        lines["resume"] = [f"{choice}: {CHOICES[choice]}"]
    for label, content in lines.items():
        for number, line in enumerate([content] if isinstance(content, str) else content):
            shown = pad("" if number else label, LABEL_CELLS)
            yield f"  {terminal.paint(shown, 'dim')}{safe(line)}".rstrip()


def files(receipt: TimeoutReceipt) -> dict[str, list[str]]:
    """Return what the step left, as lines by label; labels without lines are empty."""
    found = receipt.artefacts
    fields = {
        "files": _first([f"{each.path}  {size(each.size_bytes)}" for each in found], of=len(found)),
        "unknown": [] if receipt.problem is None else [receipt.problem],
    }
    for number, tree in enumerate(receipt.work_trees, start=1):
        fields[f"git {number}" if len(receipt.work_trees) > 1 else "git"] = _tree(tree)
    return fields


def _step(receipt: Interruption) -> str:
    where = PHASES[receipt.phase]
    return where if receipt.step_key is None else f"{step_label(receipt.step_key)} · {where}"


def _checkpoint(receipt: Interruption) -> str:
    if not receipt.checkpoint_seq:
        return "none: it starts over"
    return f"step {numbered_step(receipt.checkpoint_seq, receipt.checkpoint_key or '')}"


def _answer(text: str | None) -> list[str]:
    if not text:
        return []
    return _first(safe(text, newline="\n").split("\n"), of=text.count("\n") + 1, at=TEXT_LINES_MAX)


def _tree(tree: WorkTree) -> list[str]:
    where = f"{tree.branch or 'no branch'} at {tree.head[:12] if tree.head else 'no commit'}"
    if tree.problem is not None:
        where = tree.problem
    parts = [f"{tree.folder} · {where} · {tree.change_count} uncommitted"]
    changes = [
        f"{each.state} {each.path}  {'gone' if each.size_bytes is None else size(each.size_bytes)}"
        for each in tree.changes
    ]
    return parts + _first(changes, of=tree.change_count)


def _first(lines: list[str], *, of: int, at: int = FILES_MAX) -> list[str]:
    if of <= at:
        return lines
    return [*lines[:at], f"… {of - at} more: --json has them"]
