-- Events, their deliveries, and the log of every attempt (spec 3).

-- Order of listing. Taken by the fan-out under its lock, so in commit order; a rolled-back
-- pass leaves a gap, which nobody reads anything into.
CREATE SEQUENCE vpay.event_list_seq;

CREATE TABLE vpay.events (
    seq             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    list_seq        bigint UNIQUE,
    created_at      timestamptz NOT NULL DEFAULT now(),
    body_rev        integer NOT NULL DEFAULT 1,
    fanout_attempts smallint NOT NULL DEFAULT 0,
    livemode        boolean NOT NULL,
    fanout_state    text COLLATE "C" NOT NULL DEFAULT 'pending',
    id              text COLLATE "C" NOT NULL UNIQUE,
    merchant_id     text COLLATE "C" NOT NULL,
    type            text COLLATE "C" NOT NULL,
    object_id       text COLLATE "C" NOT NULL,
    customer_id     text COLLATE "C",
    -- The exact bytes that are signed and sent: jsonb would reorder keys.
    body            bytea NOT NULL,
    -- Closed: a type joins this list and core/events.py in the change that writes it.
    CONSTRAINT type_documented CHECK (
        type IN ('payment_intent.succeeded', 'payment_intent.payment_failed',
            'payment_intent.canceled')
    ),
    CONSTRAINT fanout_state_known CHECK (fanout_state IN ('pending', 'done', 'failed')),
    CONSTRAINT listed_once_settled CHECK ((fanout_state = 'pending') = (list_seq IS NULL)),
    CONSTRAINT revisions_only_count CHECK (body_rev >= 1 AND fanout_attempts >= 0),
    CONSTRAINT event_names_have_length CHECK (
        length(id) BETWEEN 1 AND 64 AND length(merchant_id) BETWEEN 1 AND 64
        AND length(object_id) BETWEEN 1 AND 255 AND length(customer_id) BETWEEN 1 AND 255
    ),
    CONSTRAINT body_size CHECK (octet_length(body) BETWEEN 2 AND 262144)
) WITH (
    -- Every event dies once (pending → done) and its dead index entry lies where the drain
    -- begins to read: vacuum early.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- The drain goes by this flag and never by an id cursor: ids commit out of order.
CREATE INDEX events_pending ON vpay.events (seq) WHERE fanout_state = 'pending';

CREATE TABLE vpay.webhook_deliveries (
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Not before: what the last failed attempt promised. Null before the first one.
    next_attempt_at timestamptz,
    attempted_at    timestamptz,
    ended_at        timestamptz,
    -- Attempts recorded. The rung of the ladder is read from it, never from a job's counters.
    attempts        integer NOT NULL DEFAULT 0,
    digest_rev      integer,
    last_status     smallint,
    state           text COLLATE "C" NOT NULL DEFAULT 'pending',
    id              text COLLATE "C" PRIMARY KEY,
    event_id        text COLLATE "C" NOT NULL REFERENCES vpay.events (id),
    merchant_id     text COLLATE "C" NOT NULL,
    endpoint_id     text COLLATE "C" NOT NULL,
    digest          bytea,
    last_excerpt    text,
    CONSTRAINT one_per_event_and_endpoint UNIQUE (event_id, endpoint_id),
    CONSTRAINT delivery_state_known CHECK (
        state IN ('pending', 'delivered', 'exhausted', 'gone', 'poisoned')
    ),
    CONSTRAINT ended_says_when CHECK ((state = 'pending') = (ended_at IS NULL)),
    CONSTRAINT ended_waits_for_nothing CHECK (state = 'pending' OR next_attempt_at IS NULL),
    CONSTRAINT digest_names_its_revision CHECK ((digest IS NULL) = (digest_rev IS NULL)),
    CONSTRAINT digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT attempts_only_count CHECK (attempts >= 0),
    CONSTRAINT delivery_names_have_length CHECK (
        length(id) BETWEEN 1 AND 64 AND length(merchant_id) BETWEEN 1 AND 64
        AND length(endpoint_id) BETWEEN 1 AND 64 AND length(last_excerpt) <= 2000
    )
) WITH (
    -- Stamp and record touch no index, so with room on the page they are HOT updates.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE FUNCTION vpay.refuse_leaving_a_terminal_state() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'delivery % is %: nothing leaves a terminal state', OLD.id, OLD.state
        USING ERRCODE = 'check_violation';
END
$$;

CREATE TRIGGER terminal_states_stay
    BEFORE UPDATE ON vpay.webhook_deliveries
    FOR EACH ROW
    WHEN (OLD.state <> 'pending' AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION vpay.refuse_leaving_a_terminal_state();

-- One row per attempt, also of one whose outcome came too late to count.
CREATE TABLE vpay.delivery_attempts (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    begun_at        timestamptz NOT NULL,
    next_attempt_at timestamptz,
    duration_ms     integer NOT NULL,
    attempt         integer NOT NULL,
    -- Null: no answer; the excerpt then holds the error's whole chain.
    status          smallint,
    -- False: another run had recorded this attempt, or the delivery had ended.
    counted         boolean NOT NULL,
    delivery_id     text COLLATE "C" NOT NULL REFERENCES vpay.webhook_deliveries (id),
    address         text,
    config_hash     text,
    key_ids         text[] NOT NULL,
    digest          bytea,
    excerpt         text NOT NULL,
    CONSTRAINT attempt_counts_from_one CHECK (attempt >= 1 AND duration_ms >= 0),
    CONSTRAINT excerpt_is_short CHECK (length(excerpt) <= 2000)
) WITH (autovacuum_analyze_scale_factor = 0.02);

CREATE INDEX delivery_attempts_of ON vpay.delivery_attempts (delivery_id, id);
