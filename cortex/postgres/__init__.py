"""The driver layer: connections, queries, migrations and the bridge to asyncio."""
