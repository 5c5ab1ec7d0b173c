-- name: scan_pending
-- A page of what is pending, in the order of its index and from where the last one ended, so
-- that a pass costs what is pending and gets past all of it. Each row's job is looked up by
-- its key. What waits for its time has until then to lose its job, and is found after it.
WITH walked AS MATERIALIZED (
    SELECT
        merchant_id,
        endpoint_id,
        created_at,
        id,
        next_attempt_at
    FROM vpay.webhook_deliveries
    WHERE state = 'pending'
        AND (merchant_id, endpoint_id, created_at, id) > (
            %(merchant_id)s::text,
            %(endpoint_id)s::text,
            %(created_at)s::timestamptz,
            %(id)s::text
        )
    ORDER BY merchant_id, endpoint_id, created_at, id
    LIMIT %(page)s::integer
), judged AS (
    SELECT
        walked.merchant_id,
        walked.endpoint_id,
        walked.created_at,
        walked.id,
        job.id IS NULL AND coalesce(
            walked.next_attempt_at <= now(),
            walked.created_at < now() - make_interval(secs => %(older)s::float8)
        ) AS stray,
        coalesce(job.parked, false) AS parked,
        row_number() OVER (
            ORDER BY walked.merchant_id, walked.endpoint_id, walked.created_at, walked.id
        ) AS place,
        count(*) OVER () AS seen
    FROM walked
    LEFT JOIN LATERAL (
        SELECT
            jobs.id,
            jobs.parked_at IS NOT NULL AS parked
        FROM vpay.jobs
        WHERE jobs.dedupe_key = %(key_prefix)s::text || walked.id
        LIMIT 1
    ) AS job ON true
)
SELECT
    merchant_id,
    endpoint_id,
    created_at,
    id,
    stray,
    parked,
    seen
FROM judged
WHERE stray
    OR parked
    OR place = seen
ORDER BY place
