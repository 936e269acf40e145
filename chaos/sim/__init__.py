"""Several pods in one process on a clock that jumps, with real Postgres."""
