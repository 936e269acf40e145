"""What waiting clients are sent: results, events, streamed answers."""
