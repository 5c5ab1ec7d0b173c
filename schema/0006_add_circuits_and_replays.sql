-- Circuits of endpoints, replays of deliveries, and the reading of both by merchant (spec 3).

ALTER TABLE vpay.lanes
    -- Attempts in a row without any HTTP answer. Written by those alone, and by the first
    -- answer after them: healthy traffic leaves the row be.
    ADD COLUMN silent integer NOT NULL DEFAULT 0,
    -- When somebody was last told that deliveries to this endpoint are given up.
    ADD COLUMN exhausted_told_at timestamptz;

ALTER TABLE vpay.lanes
    ADD CONSTRAINT silence_only_counts CHECK (silent >= 0) NOT VALID;

ALTER TABLE vpay.webhook_deliveries
    -- Raised by a replay and by nothing else: the one way out of a terminal state.
    ADD COLUMN replays integer NOT NULL DEFAULT 0,
    -- Attempts that stood when the ladder began anew. Attempts themselves only grow: a run
    -- that slept through a replay must not find its own number free again.
    ADD COLUMN ladder_from integer NOT NULL DEFAULT 0;

ALTER TABLE vpay.webhook_deliveries
    ADD CONSTRAINT replays_only_count CHECK (replays >= 0) NOT VALID,
    ADD CONSTRAINT ladder_begins_at_an_attempt
        CHECK (ladder_from BETWEEN 0 AND attempts) NOT VALID;

CREATE OR REPLACE TRIGGER terminal_states_stay
    BEFORE UPDATE ON vpay.webhook_deliveries
    FOR EACH ROW
    WHEN (
        OLD.state <> 'pending'
        AND NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
            NEW.state = 'pending'
            AND NEW.replays = OLD.replays + 1
            AND NEW.attempts = OLD.attempts
        )
    )
    EXECUTE FUNCTION vpay.refuse_leaving_a_terminal_state();

-- What an operator reads and replays, oldest first.
CREATE INDEX deliveries_of_endpoint
    ON vpay.webhook_deliveries (merchant_id, endpoint_id, created_at, id);

-- The backstop walks what is pending, and an endpoint's oldest is its first. A delivery pays
-- for it twice, when it is made and when it ends: what lies between stays HOT.
CREATE INDEX deliveries_pending
    ON vpay.webhook_deliveries (merchant_id, endpoint_id, created_at, id)
    WHERE state = 'pending';

-- A merchant's events in the order in which they were listed …
CREATE INDEX events_of_merchant ON vpay.events (merchant_id, list_seq)
    WHERE list_seq IS NOT NULL;

-- … and those since a time, for an endpoint that missed them.
CREATE INDEX events_since ON vpay.events (merchant_id, created_at, seq);
