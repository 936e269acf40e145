"""Model clients: requests, answers, errors and repeats."""
