"""`python -m chaos all`: the programs that it runs exist, and failures are reported."""

import click
import pytest

from chaos.__main__ import chaos
from chaos.commands.everything import PARTS, Part, carry_out


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_is_a_command_of_ours(part: Part) -> None:
    name, *arguments = part.arguments
    context = click.Context(chaos)
    command = chaos.get_command(context, name)
    assert command is not None
    command.make_context(name, arguments, parent=context)  # raises if one is not to be had


def test_failed_part_prints_its_output_and_the_others_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = Part(("sim", "--seeds", "no range"), 1)
    right = Part(("sim", "--help"), 1)
    assert carry_out([wrong, right]) == [wrong.name]
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("FAIL  sim --seeds no range")
    assert "exit code 2" in output[0]
    assert any("'no range' is neither a seed nor a range" in line for line in output[1:-1])
    assert output[-1].startswith("ok    sim --help")
