"""Where screens read and act: `protocol` says what they may ask, the others ask `cortex.store`."""
