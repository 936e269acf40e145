"""Rendering from state to text: pure functions, tested without an app."""
