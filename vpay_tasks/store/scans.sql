-- name: scan_live
-- One page of live charges that nothing has touched for a while, the longest untouched first;
-- those without a poll get one. By the charge and not by the job: what was lost has no row to
-- be found by. Looked up one by one in the index of keys, which a planner that joins could
-- trade for reading all jobs. And a LIMIT that the planner can't see: it then reckons with a
-- tenth of the rows and goes along the index; told 500 while statistics say that fewer are
-- live, it gathers and sorts them all. A parked poll keeps its key, so it is there. The
-- inserts go in order of the key, as everybody's locks do.
WITH page AS MATERIALIZED (
    SELECT
        id,
        updated_at
    FROM vpay.charges
    WHERE state IN ('submitting', 'submitted', 'pending', 'unresolved')
        AND updated_at < now() - make_interval(secs => %(untouched)s::float8)
        AND (updated_at, id) > (%(after_at)s::timestamptz, %(after_id)s::text)
    ORDER BY updated_at, id
    LIMIT (SELECT %(page)s::integer)
), lost AS MATERIALIZED (
    SELECT id
    FROM page
    WHERE (
            SELECT jobs.id
            FROM vpay.jobs
            WHERE jobs.dedupe_key = %(prefix)s::text || page.id
        ) IS NULL
    ORDER BY id
), made AS (
    INSERT INTO vpay.jobs (
        queue,
        kind,
        priority,
        dedupe_key,
        payload
    )
    SELECT
        %(queue)s::text,
        %(kind)s::text,
        %(priority)s::smallint,
        %(prefix)s::text || lost.id,
        jsonb_build_object('charge_id', lost.id)
    FROM lost
    ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
    RETURNING payload ->> 'charge_id' AS charge_id
)
SELECT
    page.updated_at,
    page.id,
    (SELECT count(*) FROM page)::integer,
    ARRAY(SELECT made.charge_id FROM made ORDER BY made.charge_id)
FROM page
ORDER BY page.updated_at DESC, page.id DESC
LIMIT 1

-- name: scan_parked
-- Live charges that nobody asks about, because a person has parked their poll. From the parked
-- jobs, which are few, so that the count is exact; each charge by its key (a LIMIT keeps the
-- planner from joining, for which it could read all live ones, and left() from reading all
-- keys that begin so).
WITH parked AS MATERIALIZED (
    SELECT
        untouched.id,
        untouched.updated_at
    FROM vpay.jobs
    CROSS JOIN LATERAL (
        SELECT
            charges.id,
            charges.updated_at
        FROM vpay.charges
        WHERE charges.id = substr(jobs.dedupe_key, length(%(prefix)s::text) + 1)
            AND charges.state IN ('submitting', 'submitted', 'pending', 'unresolved')
            AND charges.updated_at < now() - make_interval(secs => %(untouched)s::float8)
        LIMIT 1
    ) AS untouched
    WHERE jobs.parked_at IS NOT NULL
        AND jobs.queue = %(queue)s::text
        AND left(jobs.dedupe_key, length(%(prefix)s::text)) = %(prefix)s::text
)
SELECT
    (SELECT count(*) FROM parked)::integer,
    ARRAY(SELECT parked.id FROM parked ORDER BY parked.updated_at, parked.id LIMIT %(names)s::integer)
