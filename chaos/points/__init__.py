"""Kills and stops a pod once at each named point of the code."""
