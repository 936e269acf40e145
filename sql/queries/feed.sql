-- name: results
-- Of the given jobs, those that have ended, those whose code no living pod has, and those that do not exist (without a
-- status). $1 ids, $2 bytes: beyond this size, as stored, further results are left out (the first is complete, whatever
-- its size).
SELECT * FROM cortex.job_results($1, $2);

-- name: since
-- What happened to each of several jobs after a position, in one snapshot: transitions, ended attempts, committed
-- steps, and the claim of a new attempt. $1 job ids, $2 after history ids, $3 after ended attempts, $4 after steps, $5
-- newest attempts known, $6 most rows of each kind and job. Returns the positions, from 1, of those to which something
-- happened, of those that have ended, and of those that do not exist (without a status).
SELECT * FROM cortex.job_events($1, $2, $3, $4, $5, $6);
