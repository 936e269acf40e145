"""Killed and stopped once at each named point of the code."""
