"""`cortex bench`: the figures of the README, measured on this machine."""
