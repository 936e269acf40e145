"""Traces of jobs: their ids, their headers, and which of them are kept."""
