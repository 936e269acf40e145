"""Declared routes, checks, limits and responses: the base of every route."""
