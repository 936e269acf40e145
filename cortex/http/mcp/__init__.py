"""The MCP server: tools that let an assistant operate Cortex, made of HTTP routes."""
