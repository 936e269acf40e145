"""The actor kernel: actors, supervision, mailboxes, shutdown phases. Knows nothing of jobs."""
