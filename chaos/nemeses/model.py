"""F22 to F24: the model is overloaded, broken, silent, cut short, or returns nonsense.

The scripted model gets the whole plan at its start, as the `rules` of all such faults.
"""

import asyncio
import json
import random
import urllib.request
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.windows import Window

ANSWERED_WITHIN_S: Final = 5.0
STALLED_S: Final = 20.0
"""Longer than any caller's timeout; this long after the last fault the model is well."""

KINDS: Final[dict[str, dict[str, Any]]] = {
    "rate_limit": {"status": 429, "retry_after": 1},
    "rate_limit_date": {"status": 429, "retry_after_date_s": 1},
    "overloaded": {"status": 529},
    "broken": {"status": 500},
    "bad_gateway": {"status": 502, "body": "<html>bad gateway</html>"},
    "stall": {"fault": "stall", "fault_after": 3, "ping_s": 0.2, "fault_s": STALLED_S},
    "silence": {"fault": "silence", "fault_after": 3, "fault_s": STALLED_S},
    "cut": {"fault": "cut", "fault_after": 4},
    "early_end": {"fault": "early_end", "fault_after": 4},
    "malformed": {"fault": "malformed", "fault_after": 3},
    "error_event": {"fault": "error_event", "fault_after": 3, "error_type": "overloaded_error"},
    "html": {"fault": "html"},
    "drop": {"fault": "drop"},
    "hang": {"fault": "hang", "fault_s": STALLED_S},
}
"""The effect of a rule in the model's fault file; see `cortex.demo.fault_file`."""


class Model:
    name = "model"
    fault = "F22-F24"
    weight = 6

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"kind": dice.choice(sorted(KINDS)), "share": round(dice.uniform(0.2, 1.0), 2)}
        return round(dice.uniform(0.5, 4.0), 2), detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        """Wait until it is over: the model causes it by itself."""
        await asyncio.sleep(fault.for_s)
        try:
            log = await asyncio.to_thread(_log, stage.model.url)
        except OSError as error:
            return {"missed": f"the model did not answer: {error}", "windows": []}
        hit = [entry for entry in log["calls"] if entry["rule"] == _name(fault)]
        return {"calls": len(hit), "windows": [Window.MODEL_CALL] if hit else []}

    def rules(self, fault: Fault) -> list[dict[str, Any]]:
        """Its rules in the model's fault file, whose times count from the start of the load."""
        what = KINDS[fault.detail["kind"]]
        when = {"after_s": fault.at_s, "for_s": fault.for_s, "share": fault.detail["share"]}
        return [{"name": _name(fault), **when, **what}]


def _name(fault: Fault) -> str:
    return f"fault {fault.number}: {fault.detail['kind']}"


def _log(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/calls", timeout=ANSWERED_WITHIN_S) as answer:  # noqa: S310
        return json.load(answer)
