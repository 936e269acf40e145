"""Shared parts of tests: real servers, waiting, factories."""
