"""`packaging/kubernetes/rehearse`: its words and options."""

import argparse
import shutil
import signal
import sys
from pathlib import Path

from rehearsal.kills import kills
from rehearsal.manifests import MODES
from rehearsal.node import required
from rehearsal.resources import resources
from rehearsal.restarts import restarts
from rehearsal.starts import migrations, outage


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="rehearse", description="Run the pods of the manifests as processes of this machine."
    )
    parser.add_argument(
        "--cortex",
        default=str(Path(sys.executable).with_name("cortex")),
        help="the command or the binary [the installed one]",
    )
    parts = parser.add_subparsers(dest="part", required=True)
    killing = parts.add_parser("kills", help="kill -9 the demo's job in each overlay")
    rolling = parts.add_parser("restarts", help="rolling restarts of several pods under load")
    rolling.add_argument("--count", type=int, default=20)
    parts.add_parser("outage", help="stop Postgres under a pod")
    parts.add_parser("migrations", help="start pods at once on an empty database")
    measuring = parts.add_parser("resources", help="measure memory and CPU of all containers")
    for part in (killing, measuring):
        part.add_argument("overlays", nargs="*", default=MODES, metavar="OVERLAY")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is cleaned up
    required("bwrap", "kubectl", asked.cortex)
    entry = (str(Path(shutil.which(asked.cortex) or asked.cortex).resolve()),)
    match str(asked.part):
        case "kills":
            kills(entry, asked.overlays)
        case "outage":
            outage(entry)
        case "migrations":
            migrations(entry)
        case "resources":
            resources(entry, asked.overlays)
        case _:
            restarts(entry, asked.count)
