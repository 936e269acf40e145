"""Requests for approval: what is asked, by which rules, and the votes."""
