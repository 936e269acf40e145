"""Which job first, and whether at all: rules about submits, and pauses."""
