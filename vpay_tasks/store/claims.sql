-- name: due_queues
-- The idle question, asked every 50 ms for all queues at once, so that a claim with its
-- lock is only sent where there is something to claim. Each part is the front of an index,
-- in its order: an EXISTS may be answered by hashing all that is ready, for seconds, and is
-- when the statistics are those of an emptier table.
SELECT
    asked.queue,
    (
        SELECT true
        FROM unnest(ARRAY[0, 1, 2, 3]) AS wanted (priority)
        CROSS JOIN LATERAL (
            SELECT true
            FROM vpay.jobs
            WHERE jobs.queue = asked.queue
                AND locked_at IS NULL
                AND parked_at IS NULL
                AND lane IS NULL
                AND priority = wanted.priority
                AND run_at <= now()
            ORDER BY run_at
            LIMIT 1
        ) AS front
        LIMIT 1
    ) IS NOT NULL AS ready,
    (
        SELECT true
        FROM vpay.jobs
        WHERE jobs.queue = asked.queue
            AND locked_at IS NULL
            AND parked_at IS NULL
            AND lane IS NOT NULL
            AND due
        ORDER BY lane
        LIMIT 1
    ) IS NOT NULL AS laned,
    (
        SELECT true
        FROM vpay.jobs
        WHERE jobs.queue = asked.queue
            AND locked_at IS NULL
            AND parked_at IS NULL
            AND lane IS NOT NULL
            AND NOT due
            AND run_at <= now()
        ORDER BY run_at
        LIMIT 1
    ) IS NOT NULL AS waiting
FROM unnest(%(queues)s::text[]) AS asked (queue)

-- name: lock_queue
-- A statement of its own: counted and claimed in one statement, two dispatchers both count
-- before either commits, and the window is overshot. Freed by the commit; classid 88.
SELECT pg_advisory_xact_lock(88, hashtext(%(queue)s::text))

-- name: stage
-- Marks due rows of lanes, oldest first, a page at a time: only marked rows are walked.
UPDATE vpay.jobs
SET due = true
WHERE id IN (
    SELECT id
    FROM vpay.jobs
    WHERE queue = %(queue)s::text
        AND locked_at IS NULL
        AND parked_at IS NULL
        AND lane IS NOT NULL
        AND NOT due
        AND run_at <= now()
    ORDER BY run_at
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)

-- name: claim
-- Under the queue's lock: count the room, pick rows, group them into messages, give every
-- message a fresh token. `threads` are those of workers seen within five seconds: dead ones
-- must not be counted on. A process that serves several queues keeps one thread from each,
-- so that no queue takes them all.
WITH RECURSIVE counted AS MATERIALIZED (
    SELECT id, threads, queues
    FROM vpay.workers
    WHERE %(queue)s::text = ANY(queues)
        AND NOT draining
        AND seen_at > now() - interval '5 seconds'
),
capacity AS MATERIALIZED (
    SELECT
        coalesce(sum(threads), 0) AS threads,
        coalesce(sum(
            CASE
                WHEN cardinality(queues) > 1 THEN greatest(threads - 1, 1)
                ELSE ceil(threads * (1 + %(window)s::float8))
            END
        ), 0) AS in_flight
    FROM counted
),
taken AS MATERIALIZED (
    -- What runs on a worker that is not counted (it drains, it is stopped) takes no room
    -- from those that are.
    SELECT
        count(DISTINCT lease) FILTER (WHERE started_at IS NULL) AS claimed,
        count(DISTINCT lease) FILTER (
            WHERE started_at IS NULL OR locked_by IN (SELECT id FROM counted)
        ) AS in_flight
    FROM vpay.jobs
    WHERE queue = %(queue)s::text
        AND locked_at IS NOT NULL
),
room AS MATERIALIZED (
    SELECT
        greatest(0, least(
            ceil(capacity.threads * %(window)s::float8) - taken.claimed,
            capacity.in_flight - taken.in_flight
        ))::integer AS messages,
        -- Never more than half the threads for one lane: a bad neighbour leaves the others
        -- theirs.
        greatest(1, least(%(lane_cap)s::integer, capacity.threads / 2))::integer AS lane_cap
    FROM capacity
    CROSS JOIN taken
),
front AS MATERIALIZED (
    -- The kinds that come first: only their batches decide how many rows are worth locking.
    SELECT first.kind
    FROM unnest(ARRAY[0, 1, 2, 3]) AS wanted (priority)
    CROSS JOIN LATERAL (
        SELECT kind
        FROM vpay.jobs
        WHERE queue = %(queue)s::text
            AND locked_at IS NULL
            AND parked_at IS NULL
            AND lane IS NULL
            AND priority = wanted.priority
            AND run_at <= now()
        ORDER BY run_at
        LIMIT (SELECT messages FROM room)
    ) AS first
    LIMIT (SELECT messages FROM room)
),
page AS MATERIALIZED (
    SELECT least(500, (SELECT messages FROM room) * coalesce(max(known.batch), 1)) AS rows
    FROM unnest(%(kinds)s::text[], %(batches)s::integer[]) AS known (kind, batch)
    WHERE known.kind IN (SELECT kind FROM front)
),
plain AS MATERIALIZED (
    SELECT picked.id, picked.kind, picked.crashes
    FROM unnest(ARRAY[0, 1, 2, 3]) AS wanted (priority)
    CROSS JOIN LATERAL (
        SELECT id, kind, crashes
        FROM vpay.jobs
        WHERE queue = %(queue)s::text
            AND locked_at IS NULL
            AND parked_at IS NULL
            AND lane IS NULL
            AND priority = wanted.priority
            AND run_at <= now()
        ORDER BY run_at
        LIMIT (SELECT rows FROM page)
        FOR UPDATE SKIP LOCKED
    ) AS picked
    LIMIT (SELECT rows FROM page)
),
walk (lane, step) AS (
    (
        SELECT lane, 1
        FROM vpay.jobs
        WHERE queue = %(queue)s::text
            AND locked_at IS NULL
            AND parked_at IS NULL
            AND lane IS NOT NULL
            AND due
            AND lane > %(cursor)s::text
            AND %(laned)s::boolean
            AND (SELECT messages FROM room) > 0
        ORDER BY lane
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT jobs.lane
        FROM vpay.jobs
        WHERE jobs.queue = %(queue)s::text
            AND jobs.locked_at IS NULL
            AND jobs.parked_at IS NULL
            AND jobs.lane IS NOT NULL
            AND jobs.due
            AND jobs.lane > walk.lane
        ORDER BY jobs.lane
        LIMIT 1
    ), walk.step + 1
    FROM walk
    WHERE walk.lane IS NOT NULL
        AND walk.step < %(lanes_max)s::integer
),
laned AS MATERIALIZED (
    SELECT picked.id, picked.kind, picked.crashes, walk.lane
    FROM walk
    -- One by one, by their key: a join planned otherwise would read all exceptions, or sort
    -- the walk and lose its early stop.
    LEFT JOIN LATERAL (
        SELECT cap, paused, circuit_until, circuit_trips
        FROM vpay.lanes
        WHERE lanes.queue = %(queue)s::text
            AND lanes.lane = walk.lane
        LIMIT 1
    ) AS exception ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS rows
        FROM vpay.jobs
        WHERE jobs.queue = %(queue)s::text
            AND jobs.lane = walk.lane
            AND jobs.locked_at IS NOT NULL
    ) AS leased
    CROSS JOIN LATERAL (
        SELECT jobs.id, jobs.kind, jobs.crashes
        FROM vpay.jobs
        WHERE jobs.queue = %(queue)s::text
            AND jobs.locked_at IS NULL
            AND jobs.parked_at IS NULL
            AND jobs.lane = walk.lane
            AND jobs.due
            AND jobs.run_at <= now()
        ORDER BY jobs.run_at
        LIMIT greatest(0, -leased.rows + CASE
            WHEN exception.paused OR exception.circuit_until > now() THEN 0
            WHEN exception.circuit_trips > 0 THEN 1
            ELSE least(
                coalesce(exception.cap, (SELECT lane_cap FROM room)),
                greatest(1, (SELECT threads FROM capacity) / 2)
            )
        END)
        FOR UPDATE SKIP LOCKED
    ) AS picked
    WHERE walk.lane IS NOT NULL
    LIMIT (SELECT messages FROM room)
),
picked AS MATERIALIZED (
    SELECT id, kind, crashes, row_number() OVER ()
        + CASE WHEN %(lanes_first)s::boolean THEN 1000000 ELSE 0 END AS place
    FROM plain
    UNION ALL
    SELECT id, kind, crashes, row_number() OVER ()
        + CASE WHEN %(lanes_first)s::boolean THEN 0 ELSE 1000000 END AS place
    FROM laned
),
sized AS MATERIALIZED (
    -- A row that crashed a process runs alone until it has settled.
    SELECT picked.id, picked.kind, picked.place,
        CASE WHEN picked.crashes > 0 THEN 1 ELSE coalesce(known.batch, 1) END AS batch
    FROM picked
    LEFT JOIN unnest(%(kinds)s::text[], %(batches)s::integer[]) AS known (kind, batch)
        ON known.kind = picked.kind
),
grouped AS MATERIALIZED (
    SELECT id, kind, place,
        CASE
            WHEN batch = 1 THEN 'job ' || id
            ELSE kind || ' ' || (row_number() OVER (
                PARTITION BY kind, batch ORDER BY place) - 1) / batch
        END AS message
    FROM sized
),
message AS MATERIALIZED (
    SELECT message, min(place) AS place, gen_random_uuid() AS lease
    FROM grouped
    GROUP BY message
    ORDER BY min(place)
    LIMIT (SELECT messages FROM room)
),
served AS MATERIALIZED (
    SELECT laned.lane
    FROM laned
    JOIN grouped ON grouped.id = laned.id
    JOIN message ON message.message = grouped.message
),
walked AS MATERIALIZED (
    -- Where the next walk begins: behind the last lane that got a message when not all did
    -- (none did: where this one began), behind the last lane looked at when the walk was
    -- cut, else at the front.
    SELECT CASE
        WHEN (SELECT count(*) FROM laned) >= (SELECT messages FROM room)
            OR (SELECT count(*) FROM served) < (SELECT count(*) FROM laned)
            THEN coalesce((SELECT max(lane) FROM served), %(cursor)s::text)
        WHEN (SELECT count(*) FROM walk WHERE lane IS NOT NULL) >= %(lanes_max)s::integer
            THEN (SELECT max(lane) FROM walk)
    END AS lane
),
claimed AS (
    UPDATE vpay.jobs
    SET lease = message.lease,
        locked_by = %(dispatcher)s::text,
        locked_at = now(),
        lease_until = now() + make_interval(secs => %(claim_lease)s::float8),
        claims = claims + 1
    FROM grouped
    JOIN message ON message.message = grouped.message
    WHERE jobs.id = grouped.id
    RETURNING jobs.id, message.lease, message.place, grouped.place AS row_place
),
sent AS (
    SELECT lease, place, array_agg(id ORDER BY row_place) AS ids
    FROM claimed
    GROUP BY lease, place
)
SELECT sent.lease, sent.ids, room.messages, capacity.threads::integer, walked.lane
FROM room
CROSS JOIN capacity
CROSS JOIN walked
LEFT JOIN sent ON true
ORDER BY sent.place
