"""A scripted Messages-API server on loopback: the real SDK path runs without a key or a bill."""
