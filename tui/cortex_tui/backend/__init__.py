"""Reads and writes of the screens: `protocol` defines them, the others call `cortex.store`."""
