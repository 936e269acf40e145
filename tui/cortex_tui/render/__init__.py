"""From what is known to what is seen: pure functions, tried without an app."""
