-- name: spend
-- An assertion that is over counts as spent: its row may have been swept already.
INSERT INTO vpay.client_assertions (id, expires_at)
SELECT
    %(id)s::bytea,
    %(expires_at)s::timestamptz
WHERE %(expires_at)s::timestamptz + make_interval(secs => %(leeway)s::float8) > now()
ON CONFLICT (id) DO NOTHING
RETURNING 1

-- name: sweep_assertions
-- Twice the leeway: what `spend` compared with now() a moment ago is surely over here.
DELETE FROM vpay.client_assertions
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM vpay.client_assertions
    WHERE expires_at <= now() - 2 * make_interval(secs => %(leeway)s::float8)
    ORDER BY expires_at
    LIMIT %(page)s::integer
    FOR UPDATE SKIP LOCKED
))
RETURNING 1
