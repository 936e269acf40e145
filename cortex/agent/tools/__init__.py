"""The tools that every agent may name in its spec, one file each."""

from cortex.agent.tool import tools_by_name
from cortex.agent.tools import http_request, list_files, read_file, run_command, write_file

BUILT_IN = tools_by_name(http_request, list_files, read_file, run_command, write_file)
