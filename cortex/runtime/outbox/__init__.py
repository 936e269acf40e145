"""Sends the messages of the outbox."""
