"""The committer: writes of running jobs, in batches."""
