"""The identity of a pod's code: all causes of a hand-back are part of it."""

import itertools
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cortex.agent.tools.tool import tool
from cortex.durable.registry import job
from cortex.runtime.pod_parts import standard_parts

NOW = datetime(2027, 1, 1, tzinfo=UTC)
STARTS = itertools.count()


class Client:
    """Its text is an address, as that of most objects."""


def an_app(*, default: Any = ..., tools: Iterable[str] = ("look_up",), type_: Any = str) -> Any:
    """Define one job type, with an argument of this default, and these tools."""

    async def digest(ctx: Any, since: Any = default, text: str = "") -> None: ...

    async def bare(ctx: Any, since: Any, text: str = "") -> None: ...

    handler = bare if default is ... else digest
    handler.__annotations__["text"] = type_

    async def work(city: str, at: float = float(next(STARTS))) -> str:
        """Do it.

        Args:
            city: Name.
            at: Seconds.
        """
        return city

    app = ModuleType("app")
    app.__dict__["digest"] = job("digest")(handler)
    for name in tools:
        work.__name__ = name
        app.__dict__[name] = tool(work)
    return app


def identity(folder: Path, app: Any) -> bytes:
    return standard_parts(apps=[app], workspaces=folder, code_version="1").code.digest


def test_causes_of_a_hand_back_make_other_code(tmp_path: Path) -> None:
    apps = [an_app(), an_app(default=None), an_app(type_=int), an_app(tools=())]
    apps.append(an_app(tools=("look_up", "send")))
    assert len({identity(tmp_path, app) for app in apps}) == len(apps)


def test_an_installed_package_makes_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    monkeypatch.setattr(sys, "path", [*sys.path, str(site), str(tmp_path / "absent")])
    found = []
    for name in ("x", "parser-1.0.dist-info", "parser-1.1.dist-info"):
        for old in site.glob("*.dist-info"):
            old.rmdir()
        (site / name).mkdir(parents=True)
        found.append(identity(tmp_path, an_app()))
    assert len(set(found)) == 3


def test_the_same_code_is_the_same_at_each_start(tmp_path: Path) -> None:
    moments = (NOW + timedelta(seconds=n) for n in itertools.count())
    defaults = (lambda: next(moments), Client, lambda: Path(f"{next(STARTS)}.txt"))
    for default in defaults:
        starts = {identity(tmp_path, an_app(default=default())) for _ in range(3)}
        assert len(starts) == 1, default
