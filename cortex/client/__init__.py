"""Submitting jobs, waiting for them and deciding about them from another program."""
