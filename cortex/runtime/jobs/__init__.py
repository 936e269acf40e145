"""Runs jobs: claims them, runs their handlers, and decides what each end means."""
