"""What job code sees: `job`, `Context`, `Retry`; and how its steps are recorded and replayed."""
