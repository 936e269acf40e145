"""`cortex licences`: packages by their own words, and what the binary bundles by its list."""

import json
from pathlib import Path

from cortex.cli.licences import components
from tests.support.in_process import run_here


def test_licences_list_exactly_the_dependencies(tmp_path: Path) -> None:
    found = {each.name: each for each in components(tmp_path)}
    assert {"cortex-durable", "trio", "textual", "asyncpg", "h11", "linkify-it-py"} <= found.keys()
    assert not {"pytest", "mypy", "ruff"} & found.keys()
    assert not [name for name, each in found.items() if each.licence == "unknown" or not each.text]
    assert "Apache License" in found["cortex-durable"].text


def test_bundled_components_are_listed_with_their_text(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "cortex"
    folder.mkdir(parents=True)
    bundled = {"name": "zlib", "version": "1.2", "licence": "Zlib", "text": "as is"}
    (folder / "components.json").write_text(json.dumps([bundled]))
    (zlib,) = [each for each in components(tmp_path) if each.name == "zlib"]
    assert (zlib.version, zlib.licence, zlib.text) == ("1.2", "Zlib", "as is")


def test_licence_text_is_shown_whole(tmp_path: Path) -> None:
    ended = run_here(["licences", "Trio"], env={}, folder=tmp_path)
    assert ended.code == 0
    assert "LICENSE.APACHE2" in ended.out
    assert run_here(["licences", "left-pad"], env={}, folder=tmp_path).code == 3
