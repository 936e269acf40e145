"""An agent of a test's own on the shared scripted model: its jobs play what the test wrote."""

from pathlib import Path
from typing import Any
from uuid import UUID

from attrs import frozen

from tests.support.pods import Pods, run_cli
from tests.support.records.rows import submit
from tests.support.servers.scripted_model import MODEL, ScriptedModel, program

NAME = "tester"


@frozen
class ScriptedAgent:
    """`mark` begins its prompts, to distinguish its calls from those of other tests."""

    pods: Pods
    model: ScriptedModel
    mark: str
    folder: Path

    def apply(self, *tools: str, more: str = "") -> None:
        """Apply the agent with these tools and more lines of its specification.

        Pods that start from now on talk to the model.
        """
        self.pods.environment |= self.model.environment
        file = self.folder / "agent.yaml"
        listed = ", ".join(tools)
        file.write_text(
            f"name: {NAME}\nmodel: {MODEL}\nsystem: You test.\ntools: [{listed}]\n{more}"
        )
        ran = run_cli("agents", "apply", str(file), dsn=self.pods.dsn, folder=self.folder)
        assert ran.exit_code == 0, ran.stderr

    def submit(self, *turns: dict[str, Any], label: str = "", **fields: Any) -> UUID:
        """Submit a job that plays these turns; `label` sets its calls apart from its siblings'."""
        prompt = program(*turns, mark=f"{self.mark} {label} ", **fields)
        return submit(self.pods.dsn, "run_agent", {"prompt": prompt}, agent=NAME)

    def calls(self, label: str = "") -> list[tuple[int, str]]:
        """(turn, outcome) of each call of such a job, in order."""
        found = self.model.calls(f"{self.mark} {label} ")
        return [(each["turn"], each["outcome"]) for each in found]

    def is_streaming(self, turn: int) -> bool:
        """Whether a call of this turn is open and has sent something."""
        return any(
            each["turn"] == turn and each["outcome"] == "open" and each["chunk_count"]
            for each in self.model.calls(self.mark)
        )
