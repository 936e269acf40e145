"""Settings of the embedded Postgres, written anew before each start.

They come last in `postgresql.conf`, so a new version of Cortex can change them. Who wants
something else for one machine uses ALTER SYSTEM, which stands above them.
"""

from pathlib import Path

_SETTINGS = """\
# Written by Cortex before each start. Use ALTER SYSTEM to override a setting.

# Reached through a socket that only the owner of the data can get to, never over the network.
listen_addresses = ''
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
port = {port}
max_connections = 200

# A commit that was acknowledged survives a power cut.
fsync = on
synchronous_commit = on

# Sized for a laptop or a small virtual machine; fewer and smoother checkpoints than the defaults.
# No wal_compression: this build has only pglz, which costs 0.1 ms of CPU a page.
shared_buffers = '256MB'
huge_pages = try
max_wal_size = '2GB'
min_wal_size = '256MB'
wal_compression = off
checkpoint_timeout = '15min'
checkpoint_completion_target = 0.9

# Nobody who went away keeps a lock: dead clients and forgotten transactions are found.
client_connection_check_interval = '1s'
tcp_keepalives_idle = 30
tcp_keepalives_interval = 10
tcp_keepalives_count = 3
idle_in_transaction_session_timeout = '60s'

# Short indexed statements on a disk without seeks.
jit = off
random_page_cost = 1.1

# The queue turns its rows over all the time: clean often, in small and quick passes.
autovacuum_naptime = '10s'
autovacuum_vacuum_cost_limit = 2000

# One log file, cut at start. Rows stay out of it (terse), as they may hold secrets.
logging_collector = off
log_destination = 'stderr'
log_line_prefix = '%m [%p] '
log_min_messages = warning
log_error_verbosity = terse
log_checkpoints = off
log_autovacuum_min_duration = -1

timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
"""


def render_settings(*, socket_dir: Path, port: int) -> str:
    """The text of `cortex.conf`; `socket_dir` must need no quoting."""
    return _SETTINGS.format(socket_dir=socket_dir, port=port)
