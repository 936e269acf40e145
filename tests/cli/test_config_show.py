"""`cortex config show` and `cortex completion`."""

import subprocess
from pathlib import Path

import pytest

from cortex.cli.completion import SHELLS, script
from tests.support.command_line import Cortex

SECRET = "hunter2"


def test_each_setting_has_its_value_and_its_source(cortex_nowhere: Cortex) -> None:
    (cortex_nowhere.folder / "cortex.toml").write_text("slots = 7\nworkers = 2\n")
    dsn = f"postgresql://u:{SECRET}@db/x"
    env = {"CORTEX_SLOTS": "9"}
    ended = cortex_nowhere("config", "show", "--json", "--dsn", dsn, env=env)
    rows = {row["setting"]: (row["value"], row["source"]) for row in ended.document["settings"]}
    assert rows["slots"] == (9, "CORTEX_SLOTS")
    assert rows["workers"] == (2, "cortex.toml")
    assert rows["sweep_s"] == (60, "default")
    assert rows["dsn"][0] == "postgresql://u:***@db/x"
    assert SECRET not in ended.out


def test_a_wrong_setting_is_named(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("config", "show", env={"CORTEX_SLOTS": "many"})
    assert ended.code == 2
    assert "CORTEX_SLOTS: setting slots is 'many', not a whole number" in ended.err


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_is_printed(cortex_nowhere: Cortex, shell: str) -> None:
    assert cortex_nowhere("completion", shell).out.strip() == script(shell).strip()


def test_the_bash_script_is_valid_and_completes(cortex_nowhere: Cortex, tmp_path: Path) -> None:
    path = tmp_path / "cortex.bash"
    path.write_text(script("bash"))
    subprocess.run(["/bin/bash", "-n", str(path)], check=True)
    words = {"COMP_WORDS": "cortex comp", "COMP_CWORD": "1", "_CORTEX_COMPLETE": "bash_complete"}
    assert cortex_nowhere(env=words).out == "plain,completion\n"
