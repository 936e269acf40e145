"""`python -m bench`."""

import sys

from bench.command import bench
from cortex.cli.main import run

sys.exit(run(sys.argv[1:], root=bench, name="python -m bench"))
