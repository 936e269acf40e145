"""Arguments of commands about a user's own application."""

import json
from pathlib import Path
from typing import Any

import click


def place_of(app: str) -> str:
    """The path of an application for pods, which run in another directory."""
    is_file = app.endswith(".py") or "/" in app
    if is_file and not Path(app).is_file():
        raise click.UsageError(f"app {app!r} does not exist")
    return str(Path(app).resolve()) if is_file else app


def payload_of(text: str) -> dict[str, Any]:
    """The arguments of a job, given as a JSON object."""
    try:
        payload = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--payload is not valid JSON: {error}") from error
    if not isinstance(payload, dict):
        raise click.UsageError("--payload is not a JSON object")
    return payload
