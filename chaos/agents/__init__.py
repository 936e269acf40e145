"""An agent with MCP servers whose pods are killed at random instants."""
