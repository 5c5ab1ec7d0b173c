-- What an API in front of payments needs to answer a request twice, once, or not (spec 5).

-- One row per request that a merchant may repeat. A claim is held by the process at work on
-- it, until it has stored the answer or its lease is over.
CREATE TABLE vpay.idempotency_keys (
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    claim       uuid NOT NULL,
    status      smallint,
    merchant_id text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    answer      bytea,
    PRIMARY KEY (merchant_id, key),
    CONSTRAINT answer_is_whole CHECK ((answer IS NULL) = (status IS NULL)),
    CONSTRAINT answer_size CHECK (octet_length(answer) <= 262144),
    CONSTRAINT fingerprint_is_sha256 CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT status_is_http CHECK (status BETWEEN 100 AND 599),
    CONSTRAINT lease_ends_before_the_row CHECK (lease_until <= expires_at),
    CONSTRAINT idempotency_names_have_length CHECK (
        length(merchant_id) BETWEEN 1 AND 64 AND length(key) BETWEEN 1 AND 255
    )
);

CREATE INDEX idempotency_keys_expiry ON vpay.idempotency_keys (expires_at);

-- The names of client assertions that were used; never the assertions.
CREATE TABLE vpay.client_assertions (
    expires_at timestamptz NOT NULL,
    id         bytea PRIMARY KEY,
    CONSTRAINT assertion_id_is_sha256 CHECK (octet_length(id) = 32)
);

CREATE INDEX client_assertions_expiry ON vpay.client_assertions (expires_at);

-- Attempts in a window. The id is a hash: what was counted is never stored.
CREATE TABLE vpay.rate_limits (
    attempts   bigint NOT NULL,
    elapses_at timestamptz NOT NULL,
    id         bytea PRIMARY KEY,
    -- For people: what kind of attempt it is.
    scope      text COLLATE "C" NOT NULL,
    CONSTRAINT rate_limit_id_is_sha256 CHECK (octet_length(id) = 32),
    CONSTRAINT rate_limit_counts_from_one CHECK (attempts >= 1),
    CONSTRAINT rate_limit_scope_has_length CHECK (length(scope) BETWEEN 1 AND 64)
) WITH (
    -- An attempt within its window changes no indexed column: with room on the page it is
    -- a HOT update.
    fillfactor = 70,
    -- Rows come and go with traffic: vacuum by count.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000
);

CREATE INDEX rate_limits_elapsed ON vpay.rate_limits (elapses_at);
