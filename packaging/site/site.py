"""Builds the manual as a site: README and docs, with the links that they have on disk.

Pages link to each other and to files beside `docs/` by relative paths. The site keeps the paths of
the repository, so all of these links work unchanged, and each one is checked.
"""

import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from markdown.extensions.codehilite import CodeHiliteExtension
from markdown.extensions.fenced_code import FencedCodeExtension
from markdown.extensions.tables import TableExtension
from markdown.extensions.toc import TocExtension
from mkdocs.commands.build import build
from mkdocs.config import load_config
from pygments.formatters import HtmlFormatter

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
PAGES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
CODE: Final = ".rst-content .highlight"
LIGHT: Final = "xcode"
DARK: Final = "zenburn"
"""Styles of code whose colours all have enough contrast; check_site.py measures it."""
_LINK: Final = re.compile(r"\]\(([^)#\s]+)|(?:src)=\"([^\"]+)\"")


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as other renderers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", separator)


def collect(into: Path) -> None:
    """Copy all pages, and every file that one of them links to."""
    shutil.copytree(ROOT / "docs", into / "docs")
    for name in PAGES:
        shutil.copy(ROOT / name, into / name)
    shutil.copy(HERE / "site.css", into / "site.css")
    (into / "code.css").write_text(colours(), "utf-8")
    for page in list(into.rglob("*.md")):
        original = ROOT / page.relative_to(into)
        for link in _LINK.findall(page.read_text("utf-8")):
            target = (original.parent / (link[0] or link[1])).resolve()
            if target.is_file() and target.is_relative_to(ROOT):
                copy = into / target.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(target, copy)


def colours() -> str:
    """Return the style sheet of highlighted code, for light and dark mode."""
    light, dark = (
        HtmlFormatter(style=each, nobackground=True).get_style_defs(CODE) for each in (LIGHT, DARK)
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def navigation(entries: list[Any], pages: Path) -> list[Any]:
    """Replace each folder by its pages that the navigation does not name itself."""
    named = set(re.findall(r"[\w./-]+\.md", str(entries)))

    def expanded(value: Any) -> Any:
        if not isinstance(value, str) or not value.endswith("/"):
            return value
        found = (f"{value}{each.name}" for each in sorted((pages / value).glob("*.md")))
        return [each for each in found if each not in named]

    return [{title: expanded(value) for title, value in each.items()} for each in entries]


def main(site: Path) -> None:
    """Build the site, or end with the list of what is broken."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder)
        collect(pages)
        config = load_config(
            str(HERE / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site.resolve())
        )
        config.nav = navigation(config.nav or [], pages)
        config.markdown_extensions = [
            TableExtension(),
            FencedCodeExtension(),
            CodeHiliteExtension(guess_lang=False, css_class="highlight"),
            TocExtension(slugify=slug, permalink=True),
        ]
        config.mdx_configs = {}
        build(config)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
