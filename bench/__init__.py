"""Measurements that need a checkout: `python -m bench`."""
