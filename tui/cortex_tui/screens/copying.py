"""Copies the object under the cursor to the clipboard, a file or an editor; changes nothing."""

from pathlib import Path
from typing import Final

from textual.app import App, SuspendNotSupported

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex_tui import editor
from cortex_tui.model.pick import Pick
from cortex_tui.model.selected import Selected
from cortex_tui.render.documents import document_text
from cortex_tui.render.words import failed
from cortex_tui.screens.frame import Frame

CLIPBOARD_BYTES_MAX: Final = 74_000
"""Terminals accept sequences of about 100,000 bytes; this is one in base64."""
NOTHING: Final = "there is nothing here"
READING: Final = "reading …"


def ask(app: App[int], frame: Frame) -> None:
    """Ask which form of the object under the cursor to copy, and copy it."""
    resource = frame.resource()
    choices = {
        "i": "id" if resource and resource.id else "",
        "j": "JSON" if resource and resource.document else "",
        "c": "command" if resource and resource.command else "",
        "v": "value" if resource and resource.value else "",
        "s": "screenshot",
    }
    pick = Pick("copy", {key: what for key, what in choices.items() if what})

    def answered(is_picked: bool) -> None:  # noqa: FBT001 -- the strip's
        if not is_picked:
            frame.strip.show("nothing was copied", "dim")
        elif pick.picked == "s":
            app.call_after_refresh(_save_picture, app, frame)
        elif resource is not None and pick.picked == "j":
            _ = frame.run_worker(_copy_document(app, frame, resource), group="copy", exclusive=True)
        elif resource is not None:
            # Names may hold control characters, which would act in a shell: escape them.
            forms = {"i": safe(resource.id), "c": resource.command, "v": resource.value}
            _copy(app, frame, forms[pick.picked])

    frame.strip.ask(pick, answered)


async def look_at(app: App[int], frame: Frame) -> None:
    """Open the object under the cursor as JSON in the operator's editor; edits are discarded."""
    resource = frame.resource()
    if resource is None or resource.document is None:
        frame.strip.show(NOTHING, "dim")
        return
    text = await _read(frame, resource)
    if text is None or not await frame.context.recall.is_clear(frame.strip) or not frame.is_current:
        return
    try:
        with app.suspend():
            why_not = editor.show(text)
    except SuspendNotSupported:
        why_not = "an editor needs a terminal that can be lent to it"
    if why_not:
        frame.strip.show(why_not, "warn")
    frame.context.wake()


async def _copy_document(app: App[int], frame: Frame, resource: Selected) -> None:
    text = await _read(frame, resource)
    if text is not None:
        _copy(app, frame, text)


async def _read(frame: Frame, resource: Selected) -> str | None:
    """Return an object as JSON; None if it cannot be read, after showing why."""
    if resource.document is None:
        return None
    frame.strip.show(READING, "dim")
    try:
        text = document_text(await resource.document())
    except CortexError as error:
        frame.strip.show(f"✗ {failed(error)}", "fail")
        return None
    frame.strip.drop(READING)
    return text


def _copy(app: App[int], frame: Frame, text: str) -> None:
    size = len(text.encode())
    if size > CLIPBOARD_BYTES_MAX:
        refusal = f"{size:,} bytes are more than a terminal takes: open it in an editor"
        frame.strip.show(refusal, "warn")
        return
    app.copy_to_clipboard(text)
    what = text if "\n" not in text else f"{size:,} bytes of JSON"
    frame.strip.show(f"copied {safe(what)}, if the terminal lets it", "dim")


def _save_picture(app: App[int], frame: Frame) -> None:
    """Write the screen to a new file."""
    session = frame.context.session
    name = f"cortex-{frame.NAME}-{session.now:%Y%m%dT%H%M%SZ}.svg"
    path = session.pictures / name
    try:
        session.pictures.mkdir(parents=True, exist_ok=True)
        path.write_text(app.export_screenshot(), "utf-8")
    except OSError as error:
        frame.strip.show(f"✗ {safe(str(path))}: {safe(error.strerror or str(error))}", "fail")
        return
    frame.strip.show(f"saved {name} in {safe(_brief(session.pictures))}", "dim")


def _brief(folder: Path) -> str:
    """Shorten a folder's path; the file name comes before it, so that it is never cut."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
