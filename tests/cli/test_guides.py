"""The guides to flows and to built-in job types name all that there is."""

import re
from pathlib import Path

import attrs

from cortex.domain.policy import POLICIES
from cortex.flows.functions import FUNCTIONS
from cortex.flows.spec import FlowStep, parse_flows
from cortex.flows.step_kinds import KINDS
from cortex.jobs import builtin_registry

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
FLOWS = (GUIDES / "flows.md").read_text()
JOBS = (GUIDES / "built-in-jobs.md").read_text()
HIDDEN = {"timeout_s"}


def yaml() -> str:
    text, *_ = re.findall(r"```yaml\n(.*?)```", FLOWS, re.DOTALL)
    return str(text)


def test_flow_of_the_guide_has_its_described_order() -> None:
    (flow,) = parse_flows(yaml(), "flows.md")
    assert [flow.needs(index) for index in range(4)] == [(), ("fetch",), ("check",), ("agree",)]


def test_every_field_kind_and_function_of_flows_is_described() -> None:
    fields = {field.name.rstrip("_") for field in attrs.fields(FlowStep)}
    kinds = [field.name for kind in KINDS.values() for field in attrs.fields(kind.shape)]
    for word in (*fields, *KINDS, *(set(kinds) - HIDDEN), *FUNCTIONS):
        assert f"`{word}`" in FLOWS, word


def test_every_built_in_type_and_argument_is_described() -> None:
    registry = builtin_registry()
    for name in set(POLICIES) - {"bulk"}:
        assert f"| `{name}` |" in JOBS, name
        parameters = registry.get(name).parameters
        for argument in set(parameters) - {"within", "version"}:
            assert f"`{argument}`" in JOBS, (name, argument)
