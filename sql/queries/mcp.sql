-- name: known
-- What is recorded about the tools of an agent's server. $1 agent, $2 server, $3 its identity.
SELECT t.* FROM cortex.mcp_tool t WHERE t.agent = $1 AND t.server = $2 AND t.identity = $3 ORDER BY t.tool COLLATE "C";

-- name: note
-- Records what a server says about its tools. $1 agent, $2 server, $3 its identity, $4 texts by name, $5 names in the
-- specification. Locks: the turn of specifications, its rows. Returns all of that server. See cortex.note_mcp_tools.
SELECT t.* FROM cortex.note_mcp_tools($1, $2, $3, $4::jsonb, $5) t;

-- name: of_agent
-- The tools of all servers that an agent has used. $1 agent.
SELECT t.* FROM cortex.mcp_tool t WHERE t.agent = $1 ORDER BY t.server COLLATE "C", t.tool COLLATE "C", t.identity;

-- name: page
-- The tools of the servers of all agents. $1 limit.
SELECT t.* FROM cortex.mcp_tool t
ORDER BY t.agent COLLATE "C", t.server COLLATE "C", t.tool COLLATE "C", t.identity LIMIT $1;

-- name: trust
-- Accepts what a server says now about some tools. $1 agent, $2 server, $3 its identity, $4 texts by name as they were
-- shown, $5 who acts, $6 why. Locks: the tools, the jobs that wait. Returns the accepted tools. See
-- cortex.trust_mcp_tools.
SELECT cortex.trust_mcp_tools($1, $2, $3, $4::jsonb, $5::jsonb, $6) AS tool;

-- name: changed
-- Tools whose servers say something that nobody has accepted, for the doctor. $1 limit.
SELECT t.* FROM cortex.mcp_tool t WHERE t.offered IS NOT NULL ORDER BY t.agent, t.server, t.tool LIMIT $1;
