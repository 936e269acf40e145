"""Keeps what jobs log and print: taken where it is written, stored beside the commits."""
