"""The commands of `python -m chaos`, one file each."""
