"""Heartbeats, sweeps, takeovers and the shutdown of a pod."""
