"""Model clients: requests, answers, errors and retries."""
