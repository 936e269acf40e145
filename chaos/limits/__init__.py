"""Jobs of a type with limits, on pods that are killed at random instants."""
