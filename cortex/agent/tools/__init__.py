"""The tools that every agent may name in its spec, one file each."""

from cortex.agent.tools import (
    http_request,
    list_files,
    read_file,
    run_command,
    send_notification,
    write_file,
)
from cortex.agent.tools.tool import tools_by_name

BUILT_IN = tools_by_name(
    http_request, list_files, read_file, run_command, send_notification, write_file
)
