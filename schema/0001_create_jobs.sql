-- Jobs, lanes, workers: the only record of work (spec 1).

CREATE TABLE vpay.jobs (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_at        timestamptz NOT NULL DEFAULT now(),
    created_at    timestamptz NOT NULL DEFAULT now(),
    locked_at     timestamptz,
    lease_until   timestamptz,
    started_at    timestamptz,
    unknown_since timestamptz,
    parked_at     timestamptz,
    lease         uuid,
    settled_by    uuid,
    claims        integer NOT NULL DEFAULT 0,
    starts        integer NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    priority      smallint NOT NULL DEFAULT 2,
    -- A row with a lane is walked over by claims only once a stage step (or an enqueue or
    -- settle without a delay) has marked it: lanes that wait on ladders cost nothing.
    due           boolean NOT NULL DEFAULT false,
    queue         text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    lane          text COLLATE "C",
    dedupe_key    text COLLATE "C",
    locked_by     text,
    poked         interval,
    dead_reason   text,
    last_error    text,
    payload       jsonb NOT NULL,
    CONSTRAINT lease_is_whole CHECK (
        (lease IS NULL AND locked_by IS NULL AND locked_at IS NULL AND lease_until IS NULL
            AND started_at IS NULL)
        OR (lease IS NOT NULL AND locked_by IS NOT NULL AND locked_at IS NOT NULL
            AND lease_until IS NOT NULL)
    ),
    CONSTRAINT parked_has_reason_and_no_lease CHECK (
        (parked_at IS NULL AND dead_reason IS NULL)
        OR (parked_at IS NOT NULL AND dead_reason IS NOT NULL AND lease IS NULL)
    ),
    CONSTRAINT dead_reason_known CHECK (
        dead_reason IN ('poisoned', 'misconfigured', 'not_implemented', 'rejected', 'crashed',
            'unknown_kind', 'attempts_exhausted', 'by_task', 'by_operator')
    ),
    CONSTRAINT payload_is_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT payload_size CHECK (octet_length(payload::text) <= 131072),
    CONSTRAINT priority_in_range CHECK (priority BETWEEN 0 AND 3),
    CONSTRAINT counters_only_count CHECK (
        claims >= 0 AND starts >= 0 AND failures >= 0 AND crashes >= 0
    ),
    CONSTRAINT names_have_length CHECK (
        length(queue) BETWEEN 1 AND 64 AND length(kind) BETWEEN 1 AND 64
        AND length(lane) BETWEEN 1 AND 255 AND length(dedupe_key) BETWEEN 1 AND 255
        AND length(last_error) <= 2000
    )
) WITH (
    -- 30 % of each page stays free so that start and renew are HOT updates.
    fillfactor = 70,
    -- A queue's dead rows are its own traffic: vacuum by count, not by share of the table.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE UNIQUE INDEX jobs_dedupe_key ON vpay.jobs (dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Predicates stand on locked_at, and no index holds a lease column: start and renew then
-- touch no index.
CREATE INDEX jobs_ready ON vpay.jobs (queue, priority, run_at)
    WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NULL;
CREATE INDEX jobs_lane ON vpay.jobs (queue, lane, run_at)
    WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND due;
CREATE INDEX jobs_lane_waiting ON vpay.jobs (queue, run_at)
    WHERE locked_at IS NULL AND parked_at IS NULL AND lane IS NOT NULL AND NOT due;
CREATE INDEX jobs_leased ON vpay.jobs (queue, lane) WHERE locked_at IS NOT NULL;
CREATE INDEX jobs_parked ON vpay.jobs (queue, parked_at) WHERE parked_at IS NOT NULL;

-- Exceptions to a queue's default cap: an operator's pause, an endpoint's own cap, a circuit.
CREATE TABLE vpay.lanes (
    queue         text COLLATE "C" NOT NULL,
    lane          text COLLATE "C" NOT NULL,
    cap           integer,
    paused        boolean NOT NULL DEFAULT false,
    circuit_until timestamptz,
    circuit_trips integer NOT NULL DEFAULT 0,
    changed_by    text,
    reason        text,
    changed_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, lane),
    CONSTRAINT cap_is_positive CHECK (cap >= 1),
    CONSTRAINT trips_only_count CHECK (circuit_trips >= 0)
);

CREATE TABLE vpay.workers (
    id            text COLLATE "C" PRIMARY KEY,
    host          text NOT NULL,
    pid           integer NOT NULL,
    queues        text[] NOT NULL,
    threads       integer NOT NULL,
    draining      boolean NOT NULL DEFAULT false,
    holds_lock    boolean NOT NULL DEFAULT false,
    started_at    timestamptz NOT NULL DEFAULT now(),
    seen_at       timestamptz NOT NULL DEFAULT now(),
    slowest_pulse interval NOT NULL DEFAULT interval '0',
    stats         jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT threads_positive CHECK (threads >= 1)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
