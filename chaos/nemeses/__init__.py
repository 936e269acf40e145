"""What happens to the pods of a run: one file a fault."""
