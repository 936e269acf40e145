-- name: keep
-- Keeps a file of a lineage unless it is there. $1 the first job, $2 digest, $3 media type, $4 content, $5 the most bytes of
-- all its files. Locks: none. Returns whether it is there now: false if there would be too many bytes. With room for it, an
-- insert that does nothing has met one that was committed meanwhile, which this statement does not see.
WITH room AS (
    SELECT coalesce(sum(f.size), 0) + length($4::bytea) <= $5::bigint AS is_left,
           coalesce(bool_or(f.sha256 = $2::bytea), false) AS is_kept
    FROM cortex.job_file f WHERE f.job_id = $1::uuid
), kept AS (
    INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content)
    SELECT $1, $2, $3::text, length($4), $4 FROM room WHERE is_left AND NOT is_kept
    ON CONFLICT DO NOTHING
)
SELECT is_left OR is_kept AS is_kept FROM room;

-- name: content
-- Reads the content of a file. $1 the first job of the lineage, $2 digest. Locks: none.
SELECT content FROM cortex.job_file WHERE job_id = $1 AND sha256 = $2;
