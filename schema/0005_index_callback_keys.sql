-- Callbacks of some rails name no reference, only something that came with the acceptance.
-- Not unique: a rail that gives one key twice must not make an acceptance fail.
CREATE INDEX charges_callback_key
    ON vpay.charges (provider_code, (provider_ref_extra ->> 'callback_key'))
    WHERE (provider_ref_extra ->> 'callback_key') IS NOT NULL;
