"""Client of servers that speak the Model Context Protocol: their tools become tools of agents.

`terms` is what an agent's specification says about a server, `catalogue` what a server says about
its tools. `sessions` keeps one `session` for each server that jobs of this process use, over
`stdio` or `http`, and closes those that nobody uses. The tools themselves, with approvals, effects
and records, are in `cortex.agent.tools.mcp_tool`.

The library (`mcp`, an extra) is imported on first use, in a thread.
"""
