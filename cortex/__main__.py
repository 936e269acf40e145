"""`python -m cortex`."""

from cortex.cli.main import main

main()
