"""Declared routes, checks, limits and answers: what every route is built on."""
