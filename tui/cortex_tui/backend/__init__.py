"""Reads and writes of the screens, on `cortex.store`; tests replace them by subclasses.

Every method is one statement or one transaction, bounded in time, and raises `CortexError`s: a
subclass of `UnavailableError` when the database cannot be reached.
"""
