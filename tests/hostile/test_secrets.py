"""No tool and no program of an agent reads a file that holds a declared secret."""

import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.process import Completed, run_confined
from cortex.agent.secrets import SecretReference, Secrets
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.tool import ToolContext
from cortex.domain.confinement import Confinement
from cortex.domain.errors import ForbiddenError, RejectedError
from cortex.domain.messages.subscription import parse_subscription
from cortex.http_client import secret_files
from cortex.runtime.outbox.senders import SenderParts
from tests.support.knowing import forget_secrets
from tests.support.pod_place import CASES, available, open_up
from tests.support.records.rows import new_id

VALUE = "s3cret-canary-7f3a91-only-here"
AS_ME = [means for means, user in CASES if user in {"root", "this user"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a secret in it that an agent declares, and many ways to it."""
    forget_secrets(monkeypatch)
    monkeypatch.setattr(secret_files, "_read", {})
    folder = tmp_path.resolve() / "folder"
    fill(folder)
    (tmp_path / "workspace").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def fill(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "token").write_text(VALUE)
    (folder / "readme").write_text("readable")
    (folder / "link").symlink_to("token")
    (folder / "sub" / "hard").hardlink_to(folder / "token")
    (folder / "sub" / "deep" / "up").symlink_to("../../token")


def declared(path: Path) -> Secrets:
    secrets = Secrets(references={"TOKEN": SecretReference(file=str(path))}, agent="a")
    secrets.register()
    return secrets


def read(folder: Path, path: str) -> str:
    context = ToolContext(
        job_id=new_id(),
        attempt=1,
        call_id="1",
        workspace=folder.parent / "workspace",
        folder=folder,
        confiner=Confiner(means=Confinement.NONE),
    )
    return str(read_file(context, path))


WAYS = ["token", "./token", "sub/../token", "link", "sub/hard", "sub/deep/up", "readme/../token"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by", ["agent", "operator", "a link", "replaced"])
def test_a_tool_does_not_open_a_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch, way: str, by: str
) -> None:
    if "sub/hard" not in way:
        assert VALUE in (folder / "token").read_text()
    match by:
        case "agent":
            declared(folder / "token")
        case "operator":
            monkeypatch.setenv("CORTEX_HTTP_SECRETS", f"file:{folder}/token@api.example")
        case "a link":
            (folder.parent / "outside").symlink_to(folder / "token")
            declared(folder.parent / "outside")
        case _:  # rotated: the old content has another name now
            declared(folder / "token")
            new = folder / "new"
            new.write_text(VALUE)
            new.rename(folder / "token")
    with pytest.raises((ForbiddenError, RejectedError)) as caught:
        read(folder, way)
    assert VALUE not in caught.value.message
    assert read(folder, "readme") == "readable"


CONFIGS: dict[str, dict[str, Any]] = {
    "webhook": {"url": "https://a.example/", "secrets": ["file:{}"]},
    "slack": {"url": "file:{}"},
    "email": {
        "server": "smtp.example:587",
        "sender": "cortex@a.example",
        "to": ["ana@a.example"],
        "user": "env:MAIL_USER",
        "password": "file:{}",
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("channel", CONFIGS)
def test_a_secret_of_a_subscription_is_known_before_it_is_read(
    folder: Path, channel: str, way: str
) -> None:
    text = json.dumps(CONFIGS[channel]).replace("{}", str(folder / "token"))
    config = {"name": "x", "topic": "*", "channel": channel} | json.loads(text)
    parts: Any = SenderParts(poster=None, allowed=None, unix_ms=lambda: 0)  # type: ignore[arg-type]
    assert parts.sender(parse_subscription(config, where=lambda _: "test")) is not None
    with pytest.raises((ForbiddenError, RejectedError)):
        read(folder, way)
    assert read(folder, "readme") == "readable"


def test_a_file_that_is_no_secret_is_read(folder: Path) -> None:
    assert read(folder, "token") == VALUE


def run(means: Confinement, folder: Path, script: str) -> Completed:
    async def main() -> Completed:
        launch = await trio.to_thread.run_sync(
            partial(
                Confiner(means=means).launch,
                workspace=folder.parent / "workspace",
                folder=folder,
                has_network=False,
            )
        )
        return await run_confined(
            ["sh", "-c", script], launch=launch, timeout_s=30, output_max_bytes=100_000
        )

    return trio.run(main)


READING = (
    *("cat token", "cat link", "cat sub/hard", "cat sub/deep/up", "cp token x; cat x"),
    *("ln token y; cat y", "mv sub/hard z; cat z", "cat /proc/self/cwd/token", "grep -r canary ."),
    *("find . -type f -exec cat {} +", "tar cf - . ", "mv sub s2; cat s2/hard", "dd if=token"),
    *("umount token; cat token", "rm token; cat token", "echo x >> token; cat token"),
)


@pytest.mark.parametrize("means", AS_ME)
def test_a_program_does_not_read_a_secret(folder: Path, means: Confinement) -> None:
    if not available(means, os.geteuid()):
        pytest.skip(f"this machine has no {means}")
    open_up(folder)
    script = "\n".join(f"({each})" for each in (*READING, "cat readme"))
    done = run(means, folder, script)
    assert VALUE in done.stdout  # nothing is declared yet: the attempts can succeed
    fill(folder)
    open_up(folder)
    declared(folder / "token")
    done = run(means, folder, script)
    assert "readable" in done.stdout
    assert VALUE not in done.stdout + done.stderr
    assert (folder / "token").read_text() == VALUE


@pytest.mark.parametrize("means", AS_ME)
def test_a_secret_in_the_workspace_keeps_programs_from_starting(
    folder: Path, means: Confinement
) -> None:
    declared(folder / "token")
    (folder.parent / "workspace" / "x").hardlink_to(folder / "token")
    with pytest.raises(RejectedError, match="holds a declared secret"):
        Confiner(means=means).launch(
            workspace=folder.parent / "workspace", folder=folder, has_network=False
        )


def test_a_secret_in_the_system_is_hidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a certificate's key in a folder that all programs see."""
    secret = next(each for each in Path("/usr/share").rglob("*.conf") if each.stat().st_size)
    workspace = folder.parent / "workspace"
    has = {each: available(each, os.geteuid()) for each in AS_ME}
    monkeypatch.setattr(secret_files, "_read", {str(secret): (0, 0)})
    open_up(folder)
    if has[Confinement.LANDLOCK]:
        with pytest.raises(RejectedError, match="Landlock cannot hide it"):
            Confiner(means=Confinement.LANDLOCK).launch(
                workspace=workspace, folder=workspace, has_network=False
            )
    for means in {Confinement.BUBBLEWRAP, Confinement.USER} & {each for each in has if has[each]}:
        assert run(means, folder, f"cat {secret}").stdout == ""
