"""Services for waiting clients: results, events, streamed answers."""
