"""Renders the results of commands on stdout, in the requested format.

JSON and YAML documents have a `schema_version`; their keys stay, new ones may appear. Messages go
to stderr, so that stdout can always be piped.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from cortex.cli.options import Format, Options, columns_named
from cortex.cli.screen.table import lines_of
from cortex.cli.screen.terminal import stderr_terminal, stdout_terminal
from cortex.domain.phrases import to_plain
from cortex.domain.safe import escaped, safe
from cortex.view.phrases import exact, json_text
from cortex.view.resource import Field, Resource

Row = TypeVar("Row")

SCHEMA_VERSION: Final = 1

LINE_CHARS_MAX: Final = 2_000
"""Maximum length of a page's line."""


class Output:
    """Writes data to stdout and messages to stderr."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.format = options.output
        self.terminal = stdout_terminal(options.color)
        self.talk = stderr_terminal(["--color", options.color])
        self._head: dict[str, Any] = {"schema_version": SCHEMA_VERSION}

    @property
    def is_for_people(self) -> bool:
        """Whether data is shown as a table or a page, not as a document."""
        return self.format.is_for_people

    def listing(
        self, noun: str, columns: Sequence[Field[Row]], rows: Sequence[Row], *, empty: str
    ) -> None:
        """Write rows; `empty` is the message for people when there are none."""
        chosen = self.chosen(columns)
        match self.format:
            case Format.TABLE | Format.WIDE:
                self._table(chosen, rows, empty)
            case Format.NAME:
                for row in rows:
                    self.line(exact(columns[0].exact(row)))
            case Format.JSONL:
                for row in rows:
                    self._json({**self._head, **_document(chosen, row)})
            case Format.JSON | Format.YAML:
                self.document({noun: [_document(chosen, row) for row in rows]})

    def resource(
        self, resource: Resource[Row], rows: Sequence[Row], *, empty: str | None = None
    ) -> None:
        """Write rows of a resource; `empty` replaces its message for people without any."""
        is_wide = self.format is Format.WIDE and self.options.columns is None
        fields = resource.plain_fields if is_wide else resource.fields
        message = resource.empty if empty is None else empty
        self.listing(resource.noun, fields, rows, empty=message)

    def record(
        self,
        document: dict[str, Any],
        *,
        name: str,
        page: Callable[[], Iterable[str]],
        is_whole: bool = False,
    ) -> None:
        """Write one resource: its page for people, its name, or a document.

        `is_whole`: long lines of the page are not cut.
        """
        match self.format:
            case Format.TABLE | Format.WIDE:
                for line in page():
                    self.line(line if is_whole else self._cut(line))
            case Format.NAME:
                self.line(name)
            case Format.JSON | Format.JSONL | Format.YAML:
                self.document(document)

    def document(self, content: dict[str, Any]) -> None:
        """Write one JSON or YAML document."""
        plain = {**self._head, **to_plain(content)}
        if self.format is Format.YAML:
            self._yaml(plain)
        elif self.format is Format.JSON and self.terminal.is_tty:
            self._json(plain, is_indented=True)
        else:
            self._json(plain)

    def json_line(self, content: dict[str, Any]) -> None:
        """Write one document of a stream, at once."""
        self._json({**self._head, **to_plain(content)})
        self.terminal.flush()

    def line(self, text: str) -> None:
        """Write one line, already safe, to stdout at once."""
        self.terminal.write(text)
        self.terminal.flush()

    def say(self, text: str, style: str = "") -> None:
        """Show people a message that is not data."""
        self.talk.write(self.talk.paint(safe(text), style))
        self.talk.flush()

    def mark_replayed(self, remark: str) -> None:
        """Mark the output as a replay: documents by a key, for people by a remark."""
        self._head["replayed"] = True
        self.say(remark, "dim")

    def _cut(self, line: str) -> str:
        """Cut an overlong line; say where all of it is."""
        more = len(line) - LINE_CHARS_MAX
        if more <= 0:
            return line
        kept = line[:LINE_CHARS_MAX] + ("\x1b[0m" if self.terminal.has_color else "")
        return f"{kept}… {more:,} more characters: --json has them all"

    def paint(self, text: str, style: str) -> str:
        return self.terminal.paint(text, style)

    def _table(self, columns: Sequence[Field[Row]], rows: Sequence[Row], empty: str) -> None:
        if not rows:
            self.say(empty, "dim")
            return
        headers, is_fitted = self.options.headers, self.format is not Format.WIDE
        for line in lines_of(
            columns, rows, terminal=self.terminal, headers=headers, is_fitted=is_fitted
        ):
            self.line(line)

    def chosen(self, columns: Sequence[Field[Row]]) -> list[Field[Row]]:
        """Return the columns to show. Raises `UsageError` for an unknown one."""
        request = self.options.columns
        if request is None:
            return [c for c in columns if c.is_default or self.format is not Format.TABLE]
        return columns_named(request, columns)

    def _json(self, plain: dict[str, Any], *, is_indented: bool = False) -> None:
        text = json_text(plain, is_indented=is_indented)
        self._utf8(escaped(text) + "\n")

    def _yaml(self, plain: dict[str, Any]) -> None:
        import yaml

        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10_000)
        if escaped(text) != text:
            text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=10_000)
        self._utf8(text)

    def _utf8(self, text: str) -> None:
        """Write documents as UTF-8, whatever the terminal supports."""
        self.terminal.flush()
        sys.stdout.buffer.write(text.encode())


def document_of(row: object, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a row."""
    return {name: getattr(row, name) for name in names}


def _document(columns: Sequence[Field[Row]], row: Row) -> dict[str, Any]:
    return {c.name: to_plain(c.exact(row)) for c in columns if not c.is_for_people}
