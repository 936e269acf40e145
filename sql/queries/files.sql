-- name: keep
-- Keeps a file of a lineage unless it is there. $1 the first job, $2 digest, $3 media type, $4 content, $5 the most bytes of
-- all its files. Locks: none. Returns whether it is there now: false if there would be too many bytes.
WITH kept AS (
    INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content)
    SELECT $1::uuid, $2::bytea, $3::text, length($4::bytea), $4
    WHERE NOT EXISTS (SELECT FROM cortex.job_file f WHERE f.job_id = $1 AND f.sha256 = $2)
      AND (SELECT coalesce(sum(f.size), 0) FROM cortex.job_file f WHERE f.job_id = $1) + length($4) <= $5::bigint
    ON CONFLICT DO NOTHING
    RETURNING true
)
SELECT EXISTS (SELECT FROM kept)
    OR EXISTS (SELECT FROM cortex.job_file f WHERE f.job_id = $1 AND f.sha256 = $2) AS is_kept;

-- name: content
-- Reads the content of a file. $1 the first job of the lineage, $2 digest. Locks: none.
SELECT content FROM cortex.job_file WHERE job_id = $1 AND sha256 = $2;
