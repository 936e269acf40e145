"""The asyncio island: everything that speaks to Postgres."""
