"""The steps of a flow as a picture: Mermaid for documents, boxes for a terminal."""

from collections.abc import Iterator

from cortex.flows.spec import FlowSpec, FlowStep


def mermaid(spec: FlowSpec) -> Iterator[str]:
    """Yield the lines of a Mermaid diagram."""
    yield "flowchart TD"
    # Numbered: a step may be called `end`, which Mermaid keeps for itself.
    numbers = {step.name: f"s{index}" for index, step in enumerate(spec.steps)}
    for index, step in enumerate(spec.steps):
        left, right = ("{{", "}}") if step.uses == "approve" else ("[", "]")
        lines = "<br>".join([step.name, _used(step), *_notes(step)])
        yield f'    s{index}{left}"{lines}"{right}'
    for index, step in enumerate(spec.steps):
        for need in spec.needs(index):
            arrow = "-. when .->" if step.when is not True else "-->"
            yield f"    {numbers[need]} {arrow} s{index}"


def boxes(spec: FlowSpec) -> Iterator[str]:
    """Yield the lines of one box for each step, in an order in which they may run."""
    before = spec.before()
    order = sorted(range(len(spec.steps)), key=lambda index: _rank(spec, index, before))
    width = max(len(f"{step.name}  {_used(step)}") for step in spec.steps)
    yield f"flow {spec.name}"
    for index in order:
        step = spec.steps[index]
        needs = spec.needs(index)
        after = f"after {', '.join(needs)}" if needs else "at once"
        inside = f"{step.name}  {_used(step)}".ljust(width)
        yield f"  ┌─{'─' * width}─┐"
        yield f"  │ {inside} │  {' · '.join([after, *_notes(step)])}"
        yield f"  └─{'─' * width}─┘"


def _used(step: FlowStep) -> str:
    """Return what a step uses; of a job also its type."""
    return f"job {step.with_['job']}" if step.uses == "job" else step.uses


def _rank(spec: FlowSpec, index: int, before: dict[str, frozenset[str]]) -> tuple[int, int]:
    return len(before[spec.steps[index].name]), index


def _notes(step: FlowStep) -> list[str]:
    return [
        *(["only when"] if step.when is not True else []),
        *(["for each item"] if step.for_each is not None else []),
        *([f"{step.retry.max} retries"] if step.retry is not None else []),
        *(["goes on after an error"] if step.on_error == "continue" else []),
    ]
