"""The actors and runners of a pod, one occupation a file."""
