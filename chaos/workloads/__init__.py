"""What the pods of a run do."""
