"""`cortex bench`: the figures of docs/internals/hot-path.md, measured on this machine."""
