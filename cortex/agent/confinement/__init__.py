"""Confines the programs that agents start."""
