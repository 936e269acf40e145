-- name: resumed
-- What traces of jobs lack that an earlier pod could not export. $1 job ids, $2 their attempts now. Of each: the failed job that
-- it continues, and the attempts right before this one that ended with their pods. Locks: none.
SELECT j.id, o.id AS origin_id, o.traceparent AS origin_traceparent, coalesce((
    SELECT jsonb_agg(jsonb_build_object(
        'attempt', a.attempt, 'outcome', a.outcome, 'ended_at', a.ended_at, 'pod', p.name, 'began_at', greatest(
            (SELECT max(h.at) FROM cortex.job_history h
             WHERE h.job_id = j.id AND h.new = 'RUNNING' AND h.attempt <= a.attempt),
            (SELECT b.ended_at FROM cortex.job_attempt b WHERE b.job_id = j.id AND b.attempt = a.attempt - 1)))
        ORDER BY a.attempt)
    FROM cortex.job_attempt a LEFT JOIN cortex.pod p ON p.id = a.pod_id
    WHERE a.job_id = j.id AND a.attempt < w.attempt AND a.outcome IN ('pod_died', 'lease_expired')
      AND NOT EXISTS (
          SELECT FROM cortex.job_attempt b WHERE b.job_id = j.id AND b.attempt BETWEEN a.attempt AND w.attempt - 1
              AND b.outcome NOT IN ('pod_died', 'lease_expired'))), '[]') AS lost
FROM unnest($1::uuid[], $2::int[]) AS w(job_id, attempt)
JOIN cortex.job_record j ON j.id = w.job_id
LEFT JOIN cortex.job_record o ON o.id = j.origin_id;
