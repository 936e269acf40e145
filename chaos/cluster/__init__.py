"""The parts of a run; all of them belong to that run and end with it."""
