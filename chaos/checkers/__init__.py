"""What must be true of every run: one file an invariant, each a function of the evidence."""
