"""Families of jobs, two levels deep, on pods that are killed at random instants."""
