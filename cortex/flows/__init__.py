"""Flows: steps that people write in YAML, and how a job runs them."""
