"""The files that an agent may read and write, and their fate after an interruption."""
