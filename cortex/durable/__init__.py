"""The interface of job code: `job`, `Context`, `Retry`; and how steps are recorded and replayed."""
