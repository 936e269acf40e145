"""Turns records into words and pictures for people."""
