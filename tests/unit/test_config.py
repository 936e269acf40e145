"""Settings: which source wins, and the error for a wrong one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from cortex.cli.run.tick import tick
from cortex.config import FIELDS, FLAGS, NAMES, Settings, host_and_port, load
from cortex.domain.errors import UsageError

TEXTS = {"app", "dsn", "data", "prices", "code_version", "tick_runners"}
"""Settings for which any text will do, as far as this module knows."""
EXAMPLES = {
    "callback_secret": "s" * 32,
    "http": "127.0.0.1:8080",
    "http_folders": "/srv/a:/srv/b",
    "http_proxies": "127.0.0.1,10.1.0.0/16",
    "tenant": "acme",
    "public_url": "https://cortex.example.org",
    "zombie_s": 200,
    "isolated_mb": 100,
    "tick_shard": "1/4",
    "pre_stop_s": 1,
    "abort_s": 50,
    "unsafe_run_command": True,
    "models": "local = {kind = 'openai', base_url = 'http://127.0.0.1:11434/v1', api = 'chat'}",
}
"""Values of settings that are neither such a text nor 60."""


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's own configuration file would be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    path = Path(platformdirs.user_config_dir("cortex")) / "config.toml"
    assert path.is_relative_to(tmp_path)
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def load_in(
    project: Path, environ: Mapping[str, str] | None = None, /, toml: str = "", **flags: Any
) -> Settings:
    (project / "cortex.toml").write_text(toml)
    return load(flags, environ=environ or {}, cwd=project)


def test_without_any_source_the_defaults_hold(user_file: Path, project: Path) -> None:
    assert load({}, environ={}, cwd=project) == Settings()


def test_flag_over_environment_over_project_over_user(user_file: Path, project: Path) -> None:
    user_file.write_text("slots = 1\npoll_s = 2\nsweep_s = 3\npeer_check_s = 4")
    toml = "slots = 11\npoll_s = 12\nsweep_s = 13"
    environ = {"CORTEX_SLOTS": "21", "CORTEX_POLL_S": "22"}
    settings = load_in(project, environ, toml=toml, slots=31)
    assert settings.slots == 31
    assert (settings.poll_s, settings.sweep_s, settings.peer_check_s) == (22.0, 13.0, 4.0)
    assert settings.heartbeat_s == Settings().heartbeat_s


def test_missing_flag_and_empty_variable_are_ignored(user_file: Path, project: Path) -> None:
    settings = load_in(project, {"CORTEX_SLOTS": "", "CORTEX_HTTP": ""}, toml="slots=7", slots=None)
    assert (settings.slots, settings.http) == (7, None)


def test_an_empty_address_is_no_embedded_database(user_file: Path, project: Path) -> None:
    empty = {"CORTEX_DSN": ""}
    with pytest.raises(UsageError, match="CORTEX_DSN is empty"):
        load_in(project, empty)
    dsn = "postgresql://db/cortex"
    assert load_in(project, empty, dsn=dsn).dsn == dsn
    user_file.write_text(f"dsn = '{dsn}'")
    assert load_in(project, empty).dsn == dsn


def test_every_setting_can_be_given_in_every_source(user_file: Path, project: Path) -> None:
    for name in NAMES:
        value: object = EXAMPLES.get(name, "x" if name in TEXTS else 60)
        by_variable = load_in(project, {f"CORTEX_{name.upper()}": str(value)})
        user_file.write_text(f"{name} = {_toml(value)}")
        by_file = load_in(project)
        if FIELDS[name].metadata["project"]:
            user_file.unlink()
            assert load_in(project, toml=f"{name} = {_toml(value)}") == by_file
        user_file.write_text("")
        flags: dict[str, Any] = {name: value}
        by_flag = load_in(project, **flags)
        assert by_variable == by_file == by_flag
        assert getattr(by_flag, name) is not None


@pytest.mark.parametrize(
    "address, parts",
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65_535)),
    ],
)
def test_an_address_has_two_parts(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize("gone, instead", [("drain_s", "abort_s"), ("close_s", "closed_s")])
def test_former_setting_is_refused_with_its_replacement(
    project: Path, gone: str, instead: str
) -> None:
    variable = f"CORTEX_{gone.upper()}"
    with pytest.raises(UsageError, match=f"{variable}: there is no setting {gone}") as caught:
        load({}, environ={variable: "30"}, cwd=project)
    assert f"CORTEX_{instead.upper()}" in str(caught.value.hint)
    (project / "cortex.toml").write_text(f"{gone} = 30")
    with pytest.raises(UsageError, match=f"there is no setting {gone}") as caught:
        load({}, environ={}, cwd=project)
    assert instead in str(caught.value.hint)


@pytest.mark.parametrize("in_user_file", [True, False])
def test_an_unknown_key_is_refused_with_its_file_and_a_suggestion(
    user_file: Path, project: Path, in_user_file: bool
) -> None:
    path = user_file if in_user_file else project / "cortex.toml"
    path.write_text("slot = 5")
    with pytest.raises(UsageError, match="unknown setting 'slot'") as caught:
        load({}, environ={}, cwd=project)
    assert str(path) in caught.value.message
    assert caught.value.hint == "did you mean 'slots'?"


def test_unlike_key_is_refused_with_all_known_names(user_file: Path, project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_in(project, toml="xyzzy = 1")
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in NAMES)


WRONG: list[tuple[str, object]] = [
    ("slots", "many"),
    ("slots", 1.9),
    ("slots", True),
    ("slots", [5]),
    ("slots", {"a": 1}),
    ("slots", 0),
    ("slots", 10_001),
    ("slots", 10**400),
    ("poll_s", "soon"),
    ("poll_s", True),
    ("poll_s", float("nan")),
    ("poll_s", float("inf")),
    ("poll_s", -1),
    ("zombie_s", 0.4),
    ("http", "8080"),
    ("http", ":8080"),
    ("http", "localhost:"),
    ("http", "localhost:http"),
    ("http", "localhost:65536"),
    ("http", "::1:8080"),
    ("http", 5),
    ("dsn", 5),
    ("data", 5),
    ("prices", 5),
]


@pytest.mark.parametrize("name, value", WRONG, ids=lambda value: str(value)[:12])
def test_a_wrong_value_in_a_file_names_file_setting_and_value(
    user_file: Path, project: Path, name: str, value: object
) -> None:
    user_file.write_text(f"{name} = {_toml(value)}")
    with pytest.raises(UsageError) as caught:
        load_in(project)
    assert str(user_file) in caught.value.message
    assert f"setting {name} is" in caught.value.message


@pytest.mark.parametrize(
    "name, value",
    [(n, v) for n, v in WRONG if type(v) in {str, int, float} and n not in TEXTS],
    ids=str,
)
def test_a_wrong_value_in_the_environment_names_its_variable(
    user_file: Path, project: Path, name: str, value: object
) -> None:
    variable = f"CORTEX_{name.upper()}"
    with pytest.raises(UsageError, match=f"^{variable}: setting {name} is"):
        load_in(project, {variable: str(value)})


def test_a_wrong_flag_is_named_as_it_is_typed(user_file: Path, project: Path) -> None:
    with pytest.raises(UsageError, match=r"^--poll-s: setting poll_s is 0, outside"):
        load_in(project, poll_s=0)


def test_a_large_limit_is_written_out(user_file: Path, project: Path) -> None:
    with pytest.raises(UsageError, match="code_wait_s is 31536001, outside 1 to 31536000"):
        load_in(project, code_wait_s=31_536_001)


@pytest.mark.parametrize("name, flag", FLAGS.items())
def test_a_flag_with_a_name_of_its_own_is_named_as_it_is_typed(
    user_file: Path, project: Path, name: str, flag: str
) -> None:
    assert flag in [option for each in tick.params for option in each.opts]
    wrong: Any = "4/4" if name == "tick_shard" else 0
    if name not in TEXTS:
        with pytest.raises(UsageError, match=f"^{flag}: setting {name} is "):
            load_in(project, **{name: wrong})


def test_the_address_is_in_no_message_and_no_repr(user_file: Path, project: Path) -> None:
    user_file.write_text('dsn = ["postgresql://u:hunter2@h/d"]')
    with pytest.raises(UsageError) as caught:
        load_in(project)
    assert "hunter2" not in caught.value.message
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))


@pytest.mark.parametrize("content", [b"slots = ", b"\xff\xfe", b"slots = 1\nslots = 2"])
def test_a_file_that_is_no_toml_is_named(user_file: Path, project: Path, content: bytes) -> None:
    (project / "cortex.toml").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load({}, environ={}, cwd=project)
    assert str(project / "cortex.toml") in caught.value.message


def test_a_folder_in_the_place_of_the_file_is_named(user_file: Path, project: Path) -> None:
    (project / "cortex.toml").mkdir()
    with pytest.raises(UsageError, match=r"cortex\.toml"):
        load({}, environ={}, cwd=project)


@pytest.mark.parametrize(
    "variables, toml, named",
    [
        ({"CORTEX_ABORT_S": "60"}, "", r"^CORTEX_ABORT_S: setting closed_s is 55, "),
        ({"CORTEX_HEARTBEAT_S": "100"}, "", r"^CORTEX_HEARTBEAT_S: setting zombie_s is 300"),
        ({"CORTEX_SLOTS": "2"}, "workers = 3", r"^CORTEX_SLOTS, .*/cortex\.toml: setting slots is"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_named_with_their_sources(
    user_file: Path, project: Path, variables: dict[str, str], toml: str, named: str
) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        load_in(project, variables, toml)
    assert caught.value.hint


def test_a_file_that_cannot_be_read_is_named(
    user_file: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match=r"config\.toml: Permission denied"):
        load_in(project)


def test_a_threshold_below_two_heartbeats_would_free_the_jobs_of_healthy_pods() -> None:
    with pytest.raises(
        UsageError, match="6 s of silence, less than two heartbeats of 4 s"
    ) as caught:
        Settings(zombie_s=10, heartbeat_s=4)
    assert caught.value.hint == "at least 13.3333, or beat more often"
    assert Settings(zombie_s=10, heartbeat_s=3).fence_s == 6.0


def test_the_fence_leaves_time_for_the_longest_effect_and_a_margin() -> None:
    settings = Settings()
    assert settings.fence_s == 180
    assert settings.fence_s + 90 == settings.lease_s
    assert settings.lease_s + 30 <= settings.zombie_s


@pytest.mark.parametrize(
    "figures, output",
    [
        ({"abort_s": 4}, "abort_s is 4, less than 0 s after pre_stop_s of 5"),
        ({"closed_s": 45}, "closed_s is 45, less than 0.5 s after abort_s of 45"),
        ({"kill_s": 30}, "kill_s is 30, less than 0.5 s after closed_s of 55"),
    ],
    ids=str,
)
def test_the_moments_of_a_pods_end_come_in_their_order(
    figures: dict[str, Any], output: str
) -> None:
    with pytest.raises(UsageError, match=output) as caught:
        Settings(**figures)
    assert caught.value.hint == "their order: pre_stop_s, abort_s, closed_s, kill_s"


@pytest.mark.parametrize("kill_s", [55.5, 57, 65])
def test_a_pod_that_hangs_ends_itself_before_it_is_killed(kill_s: float) -> None:
    settings = Settings(kill_s=kill_s)
    assert (settings.drain_s, settings.close_s) == (40, 10)
    after_signal_s = settings.drain_s + settings.close_s + settings.hard_exit_s
    assert settings.closed_s < settings.pre_stop_s + after_signal_s < kill_s


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"http": "10.0.0.2:8080"}, "http://10.0.0.2:8080"),
        ({"http": "[::1]:8080"}, "http://[::1]:8080"),
        ({"http": "0.0.0.0:8080"}, None),
        ({"http": "[::]:8080"}, None),
        ({"http": "127.0.0.1:0"}, None),
        ({"http": "0.0.0.0:8080", "public_url": "https://a.example/"}, "https://a.example"),
        ({}, None),
    ],
)
def test_links_lead_only_where_people_get_to(given: dict[str, Any], expected: str | None) -> None:
    assert Settings(**given).page_url == expected
