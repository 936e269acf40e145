"""Heartbeats, sweeps, takeovers and the end of a pod."""
