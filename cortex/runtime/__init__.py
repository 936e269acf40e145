"""The actors and runners of a pod, one responsibility per file."""
