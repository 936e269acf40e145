"""Periodic work that any pod may do: retries, expiries, triage, housekeeping."""
