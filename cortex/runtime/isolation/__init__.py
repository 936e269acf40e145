"""Runs jobs in processes of their own beside the pod."""
