-- 0042 lacking names: at the top of every screen stands also a tool that a job's own code calls and no ready pod has.
--
-- Locks: SHARE on cortex.job while an index is built, which blocks writes: less than a second for a million jobs.
-- Old pods: may keep running.

CREATE INDEX job_waits_for_tool ON cortex.job (waiting_on)
    WHERE status = 'RETRY' AND worker_job_id IS NULL AND waiting_on LIKE 'tools:%';

CREATE OR REPLACE FUNCTION cortex.lacking_tool() RETURNS text
    LANGUAGE sql STABLE AS $$
SELECT lack.name FROM (
    (SELECT 1 AS nth, coalesce((
                SELECT need FROM unnest(s.tools) AS need WHERE NOT EXISTS (
                    SELECT FROM cortex.pod p WHERE p.state = 'READY' AND need = ANY (p.tools)) LIMIT 1),
                left(array_to_string(s.tools, ', '), 60)) AS name  -- one pod has this one, another that one
     FROM cortex.tool_set s
     WHERE EXISTS (SELECT FROM cortex_worker.task t WHERE t.task = s.task AND t.state = 'READY' AND NOT t.is_suspect)
       AND NOT EXISTS (
           SELECT FROM cortex.pod p
           WHERE p.state = 'READY' AND 'run_agent' = ANY (p.job_types) AND s.tools <@ p.tools)
     ORDER BY s.task LIMIT 1)
    UNION ALL
    (SELECT 2, substr(waits.waiting_on, 7)
     FROM (SELECT j.waiting_on FROM cortex.job j
           WHERE j.status = 'RETRY' AND j.worker_job_id IS NULL AND j.waiting_on LIKE 'tools:%' LIMIT 1000) waits
     WHERE NOT EXISTS (
         SELECT FROM cortex.pod p WHERE p.state = 'READY' AND substr(waits.waiting_on, 7) = ANY (p.tools))
     ORDER BY waits.waiting_on LIMIT 1)) lack
WHERE EXISTS (SELECT FROM cortex.pod p WHERE p.state = 'READY')  -- else nothing runs at all
ORDER BY lack.nth LIMIT 1 $$;
COMMENT ON FUNCTION cortex.lacking_tool IS 'A tool that jobs wait for and no ready pod has; null: there is none.';
