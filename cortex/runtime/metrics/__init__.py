"""What a pod counts and measures, and the text that Prometheus reads."""
