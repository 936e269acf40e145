"""Starts a pod's fork server, and restarts it as a separate program after it was lost.

`python -m cortex.cli.run.fork_server` is that program; only a pod starts it. It loads the
application as it is on disk by then.
"""

import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cortex.cli.apps import add_packages, added_packages, load_apps
from cortex.cli.run.job_output import job_output_as_lines
from cortex.cli.screen.logs import configure_logs
from cortex.config import Settings, files
from cortex.domain.interpreter import module_command
from cortex.runtime.isolation.fork_server import (
    ForkServer,
    ForkServerCommand,
    serve_fork_server,
    start_fork_server,
)
from cortex.runtime.isolation.runner import RunnerParts
from cortex.runtime.own_secrets import hide_credentials, hide_memory
from cortex.runtime.pod_parts import PodParts, standard_parts


def start(settings: Settings, parts: PodParts, apps: Sequence[str]) -> ForkServer:
    """Fork the fork server, before there are threads or connections."""
    runner = RunnerParts(
        registry=parts.registry,
        tools=parts.tools,
        workspaces=parts.workspaces,
        cpu_s=settings.isolated_cpu_s,
    )
    wish = {
        "dsn": settings.dsn,
        "key_variables": settings.key_variables,
        "secrets": settings.callback_secrets,
        "apps": list(apps),
        "packages": [str(folder) for folder in added_packages()],
        "workspaces": str(parts.workspaces),
        "is_unsafe": settings.unsafe_run_command,
        "workspace_bytes": settings.workspace_mb << 20,
        "cpu_s": settings.isolated_cpu_s,
        "memory_mb": settings.isolated_mb,
    }
    # Before the fork: runners inherit the redaction of output and the protection of memory.
    hide_memory()
    hide_credentials(
        settings.dsn, variables=settings.key_variables, secrets=settings.callback_secrets
    )
    return start_fork_server(
        runner.run,
        memory_mb=settings.isolated_mb,
        warm=runner.warm,
        again=ForkServerCommand(
            tuple(module_command("cortex.cli.run.fork_server")), json.dumps(wish).encode()
        ),
    )


def main() -> None:
    """Run the fork server that the pod requested."""
    hide_memory()
    control, owner = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    control.set_inheritable(False)
    wish = json.load(sys.stdin)
    hide_credentials(wish["dsn"], variables=wish["key_variables"], secrets=wish["secrets"])
    configure_logs()
    for folder in wish["packages"]:
        add_packages(Path(folder))
    workspaces = Path(wish["workspaces"])
    parts = standard_parts(
        apps=load_apps(wish["apps"]),
        workspaces=workspaces,
        hidden=tuple(path.resolve() for path in files()),
        is_unsafe=wish["is_unsafe"],
        workspace_bytes=wish["workspace_bytes"],
    )
    runner = RunnerParts(
        registry=parts.registry, tools=parts.tools, workspaces=workspaces, cpu_s=wish["cpu_s"]
    )
    with job_output_as_lines():
        serve_fork_server(control, owner, runner.run, memory_mb=wish["memory_mb"], warm=runner.warm)


if __name__ == "__main__":
    main()
