-- The inbox: what vendors told us, kept before it is acted on (spec 4).

CREATE TABLE vpay.inbox_events (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at     timestamptz NOT NULL DEFAULT now(),
    -- The last time it was delivered.
    delivered_at    timestamptz NOT NULL DEFAULT now(),
    -- Not before: what the last failed attempt promised.
    next_attempt_at timestamptz,
    ended_at        timestamptz,
    deliveries      bigint NOT NULL DEFAULT 1,
    -- Deliveries of the same id with another body: the first one stands.
    conflicts       bigint NOT NULL DEFAULT 0,
    -- Failed attempts. The rung of the ladder is read from it, never from a job's counters.
    attempts        integer NOT NULL DEFAULT 0,
    state           text COLLATE "C" NOT NULL DEFAULT 'accepted',
    vendor          text COLLATE "C" NOT NULL,
    -- Never null: in a unique key a null would be unlike every other.
    account         text COLLATE "C" NOT NULL DEFAULT '',
    event_id        text COLLATE "C" NOT NULL,
    type            text COLLATE "C" NOT NULL,
    -- The first 255 characters; the lane is made of all of it.
    reference       text,
    lane            text COLLATE "C" NOT NULL,
    -- Scheme and fingerprint of the secret that it was verified with, once, at its receipt.
    verified_by     text NOT NULL,
    verdict         text,
    reason          text,
    last_error      text,
    digest          bytea NOT NULL,
    body            bytea NOT NULL,
    CONSTRAINT one_per_vendor_account_and_id UNIQUE (vendor, account, event_id),
    CONSTRAINT inbox_state_known CHECK (
        state IN ('accepted', 'retrying', 'done', 'ignored', 'dead')
    ),
    CONSTRAINT inbox_end_says_when CHECK (
        (state IN ('accepted', 'retrying')) = (ended_at IS NULL)
    ),
    CONSTRAINT inbox_waits_only_to_retry CHECK (
        (state = 'retrying') = (next_attempt_at IS NOT NULL)
    ),
    CONSTRAINT inbox_verdict_is_of_the_done CHECK ((state = 'done') = (verdict IS NOT NULL)),
    CONSTRAINT inbox_dead_say_why CHECK (state <> 'dead' OR reason IS NOT NULL),
    CONSTRAINT inbox_counters_only_count CHECK (
        deliveries >= 1 AND conflicts >= 0 AND attempts >= 0
    ),
    CONSTRAINT inbox_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT inbox_body_size CHECK (octet_length(body) <= 262144),
    CONSTRAINT inbox_names_have_length CHECK (
        length(vendor) BETWEEN 1 AND 64 AND length(account) <= 64
        AND length(event_id) BETWEEN 1 AND 128 AND length(type) <= 128
        AND length(reference) BETWEEN 1 AND 255 AND length(lane) BETWEEN 1 AND 255
        AND length(verified_by) BETWEEN 1 AND 64 AND length(verdict) BETWEEN 1 AND 64
        AND length(reason) <= 255 AND length(last_error) <= 2000
    )
) WITH (
    -- A repeat touches no index, so with room on the page it is a HOT update.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- For the scan, and for the age of the oldest that waits.
CREATE INDEX inbox_open ON vpay.inbox_events (received_at) WHERE ended_at IS NULL;
CREATE INDEX inbox_dead ON vpay.inbox_events (ended_at) WHERE state = 'dead';
-- For what is thrown away after its time.
CREATE INDEX inbox_over ON vpay.inbox_events (ended_at) WHERE state IN ('done', 'ignored');
