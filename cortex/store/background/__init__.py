"""What background work reads and writes: runners, messages, schedules, retention."""
