"""Deliberately broken runtimes, each of which must be caught."""
