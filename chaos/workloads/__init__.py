"""What the pods of a run are to do."""
