"""`cortex config show` and `cortex completion`."""

import subprocess
from pathlib import Path

import pytest

from cortex.cli.completion import SHELLS, script
from cortex.config import DSN_IS_FLAG, FIELDS, NAMES, PREFIX, load
from tests.support.command_line import Cortex

SECRET = "hunter2"
SIGNING = "s" * 32
EXAMPLES = dict.fromkeys(NAMES, "60") | {
    "abort_s": "61",
    "callback_secret": SIGNING,
    "closed_s": "62",
    "dsn": "postgresql://u@db/x",
    "http": "127.0.0.1:8080",
    "http_folders": "/srv/a:/srv/b",
    "http_proxies": "127.0.0.1,10.1.0.0/16",
    "isolated_mb": "100",
    "kill_s": "63",
    "models": 'local = {kind = "openai", base_url = "http://127.0.0.1:11434/v1"}',
    "public_url": "https://cortex.example.org",
    "sweep_s": "61",
    "tick_every_s": "61",
    "tick_runner_max_s": "61",
    "tick_shard": "1/4",
    "unsafe_run_command": "true",
    "zombie_s": "200",
}
"""A text for each setting that differs from its default."""


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


def test_a_flag_that_left_the_process_list_is_named_as_the_source(cortex_nowhere: Cortex) -> None:
    environ = {"CORTEX_DSN": f"postgresql://u:{SECRET}@db/x", DSN_IS_FLAG: "1"}
    ended = cortex_nowhere("config", "show", "--json", env=environ)
    (dsn,) = (row for row in ended.document["settings"] if row["setting"] == "dsn")
    assert dsn["source"] == "--dsn"


def test_a_password_in_the_public_url_is_refused_and_not_shown(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("config", "show", env={"CORTEX_PUBLIC_URL": f"http://u:{SECRET}@h/"})
    assert ended.code == 2
    assert "CORTEX_PUBLIC_URL: setting public_url is not a URL without a user" in ended.err
    assert SECRET not in ended.out + ended.err


def test_config_show_lists_all_settings(cortex_nowhere: Cortex) -> None:
    env = {f"{PREFIX}{name.upper()}": text for name, text in EXAMPLES.items()}
    assert {*EXAMPLES} == {*NAMES}
    settings = load({}, environ=env, cwd=cortex_nowhere.folder)
    ended = cortex_nowhere("config", "show", "--json", env=env)
    listed = {row["setting"]: (row["value"], row["source"]) for row in ended.document["settings"]}
    assert [*listed] == [*NAMES]
    for name in NAMES:
        value = getattr(settings, name)
        assert value != FIELDS[name].default
        expected = str(value) if isinstance(value, Path) else value
        if name == "models":
            expected = "local"
        if name == "callback_secret":
            expected = "(hidden)"
        assert listed[name] == (expected, f"{PREFIX}{name.upper()}")


def test_a_short_callback_secret_is_refused_and_not_shown(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("config", "show", env={"CORTEX_CALLBACK_SECRET": f"{SIGNING},{SECRET}"})
    assert ended.code == 2
    assert "setting callback_secret has a secret of 7 characters, not of 32 or more" in ended.err
    assert "openssl rand -hex 32" in ended.err
    assert SECRET not in ended.out + ended.err


def test_a_wrong_setting_is_named(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("config", "show", env={"CORTEX_SLOTS": "many"})
    assert ended.code == 2
    assert "CORTEX_SLOTS: setting slots is 'many', not a whole number" in ended.err


def test_a_misspelled_variable_is_named(cortex_nowhere: Cortex) -> None:
    env = {"CORTEX_SLOT": "9", "CORTEX_PORT": "tcp://10.0.0.1:80", "CORTEX_HTTP_ALLOW": "x"}
    ended = cortex_nowhere("config", "show", env=env)
    assert ended.err == "CORTEX_SLOT is not a setting: did you mean CORTEX_SLOTS?\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_is_printed(cortex_nowhere: Cortex, shell: str) -> None:
    assert cortex_nowhere("completion", shell).out.strip() == script(shell).strip()


def test_the_bash_script_is_valid_and_completes(cortex_nowhere: Cortex, tmp_path: Path) -> None:
    path = tmp_path / "cortex.bash"
    path.write_text(script("bash"))
    subprocess.run(["/bin/bash", "-n", str(path)], check=True)
    words = {"COMP_WORDS": "cortex comp", "COMP_CWORD": "1", "_CORTEX_COMPLETE": "bash_complete"}
    assert cortex_nowhere(env=words).out == "plain,completion\n"
