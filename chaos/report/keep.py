"""What is kept of a run: the options that repeat it, history, logs and verdicts."""

import asyncio
import json
import tempfile
import traceback
from pathlib import Path
from typing import Any, Final

from attrs import asdict

from chaos.plan import Plan
from chaos.report.page import page
from chaos.run import Outcome

OPTIONS: Final = "options.json"
VERDICTS: Final = "verdicts.jsonl"
PAGE: Final = "report.html"
TRACEBACK: Final = "traceback.txt"
KEPT: Final = ("*.jsonl", "*.log", "model_faults.json", "postgres/server.log")


def new_folder(seed: int) -> Path:
    """Make a directory for a run for which none was given."""
    return Path(tempfile.mkdtemp(prefix=f"chaos-seed-{seed}-"))


def keep(outcome: Outcome, folder: Path, target: Path) -> None:
    """Copy what a run left in its temporary directory."""
    _copy(outcome.plan, folder, target)
    lines = (json.dumps(asdict(verdict), default=str) for verdict in outcome.verdicts)
    (target / VERDICTS).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (target / PAGE).write_text(page(outcome), "utf-8")


def keep_broken(error: BaseException, plan: Plan, folder: Path, target: Path) -> str:
    """Do so for a run that failed; return the reason in one line."""
    _copy(plan, folder, target)
    text = "".join(traceback.format_exception(error))
    (target / TRACEBACK).write_text(text, "utf-8")
    if isinstance(error, asyncio.CancelledError):
        return "it took too long, or got SIGTERM"
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _copy(plan: Plan, folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for pattern in KEPT:
        for source in folder.glob(pattern):
            (target / source.name).write_bytes(source.read_bytes())
    _write(target / OPTIONS, asdict(plan.options))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, default=str) + "\n", "utf-8")
