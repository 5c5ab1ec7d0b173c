-- Each statement finds what breaks a promise and says so in one sentence a row; none: it holds.
-- The name's first part is the invariant's. `at_rest`: nothing is under way any more, so what
-- still waits has been forgotten.

-- name: i1_live_charges_have_a_poll
-- A payment that nobody asks about any more is lost, whatever its row says.
SELECT format('charge %s is %s and no job asks about it', c.id, c.state)
FROM vpay.charges AS c
WHERE c.state IN ('submitting', 'submitted', 'pending', 'unresolved')
    AND NOT EXISTS (SELECT FROM vpay.jobs AS j WHERE j.dedupe_key = 'poll:' || c.id)

-- name: i1_pending_deliveries_have_a_job
SELECT format('delivery %s is pending and no job delivers it', d.id)
FROM vpay.webhook_deliveries AS d
WHERE d.state = 'pending'
    AND NOT EXISTS (SELECT FROM vpay.jobs AS j WHERE j.dedupe_key = 'webhook:' || d.id)

-- name: i1_kept_vendor_events_have_a_job
SELECT format('vendor''s event %s of %s is %s and no job grants it', i.event_id, i.vendor, i.state)
FROM vpay.inbox_events AS i
WHERE i.ended_at IS NULL
    AND NOT EXISTS (SELECT FROM vpay.jobs AS j WHERE j.dedupe_key = 'inbox:' || i.id)

-- name: i1_no_job_vanishes
-- A row that went without a delete was never settled: a truncation, a restore, a trigger that
-- was off.
SELECT format('job %s (%s) was enqueued, was never settled, and is gone', made.job_id, made.kind)
FROM audit.jobs AS made
WHERE made.op = 'INSERT'
    AND NOT EXISTS (
        SELECT FROM audit.jobs AS gone WHERE gone.job_id = made.job_id AND gone.op = 'DELETE'
    )
    AND NOT EXISTS (SELECT FROM vpay.jobs AS j WHERE j.id = made.job_id)

-- name: i1_nothing_waits_at_rest
SELECT format('%s %s is still %s', what, id, state)
FROM (
    SELECT 'charge' AS what, id, state FROM vpay.charges
    WHERE state IN ('submitting', 'submitted', 'pending')
    UNION ALL
    SELECT 'delivery', id, state FROM vpay.webhook_deliveries WHERE state = 'pending'
    UNION ALL
    SELECT 'fan-out of event', id, fanout_state FROM vpay.events WHERE fanout_state = 'pending'
    UNION ALL
    SELECT 'vendor''s event', event_id, state FROM vpay.inbox_events WHERE ended_at IS NULL
) AS waiting
WHERE %(at_rest)s::boolean

-- name: i2_a_charge_ends_once
SELECT format('charge %s entered a terminal state %s times: %s', charge_id, count(*),
    string_agg(state, ', ' ORDER BY seq))
FROM audit.charges
WHERE state IN ('succeeded', 'failed')
GROUP BY charge_id
HAVING count(*) > 1

-- name: i2_no_charge_leaves_its_end
SELECT format('charge %s left %s for %s', charge_id, old_state, state)
FROM audit.charges
WHERE old_state IN ('succeeded', 'failed')

-- name: i2_charges_only_move_forward
SELECT format('charge %s went from %s to %s', charge_id, coalesce(old_state, 'nothing'), state)
FROM audit.charges
CROSS JOIN LATERAL (
    SELECT ARRAY['submitting', 'submitted', 'pending', 'unresolved', 'succeeded', 'failed'] AS path
) AS legal
WHERE coalesce(array_position(path, old_state) >= array_position(path, state), state <> 'submitting')
    AND coalesce(old_state, '') NOT IN ('succeeded', 'failed')

-- name: i2_a_charge_and_its_intent_agree
SELECT format('charge %s of %s %s is %s; its intent is %s and has received %s', c.id, c.amount,
    c.currency, c.state, i.status, i.amount_received)
FROM vpay.charges AS c
JOIN vpay.payment_intents AS i ON i.id = c.payment_intent_id
WHERE (c.state = 'succeeded') <> (i.status = 'succeeded')
    OR (c.amount, c.currency) IS DISTINCT FROM (i.amount, i.currency)
    OR (c.state = 'failed' AND i.last_payment_error IS DISTINCT FROM c.failure_code)

-- name: i3_an_outcome_carries_the_current_token
-- What stays tells the token that settled it; it must be the one that the row had. One that
-- settles a second time tells nothing new, but who lets go of a row by a settle's own session
-- has settled it.
SELECT format('job %s (%s) was settled by %s with a token that was not its own', job_id, kind,
    session)
FROM audit.jobs
WHERE op = 'UPDATE'
    AND settled_by IS DISTINCT FROM old_lease
    AND (settled_by IS DISTINCT FROM old_settled_by
        OR (lease IS NULL AND old_lease IS NOT NULL AND session LIKE 'vpay worker % settle'))

-- name: i3_only_a_run_ends_a_job
-- Of a row that goes the token is not told, but who deleted it, and what it was then.
SELECT format('job %s (%s) was ended by %s while it was %s', job_id, kind, session, CASE
    WHEN old_lease IS NULL THEN 'free'
    WHEN NOT old_started THEN 'only claimed'
    ELSE 'run by ' || old_locked_by
END)
FROM audit.jobs
WHERE op = 'DELETE'
    AND (old_lease IS NULL
        OR NOT old_started
        OR session NOT LIKE 'vpay worker%'
        OR (session LIKE 'vpay worker w\_%' AND session NOT LIKE '% ' || old_locked_by || ' %'))

-- name: i3_a_claim_is_started_once
-- A start swaps a claim's token. A second swap is one whose first answer was lost, by the same
-- worker; anybody else's is two runs of one claim.
SELECT format('job %s (%s) was started by %s while %s ran it', job_id, kind, locked_by,
    old_locked_by)
FROM audit.jobs
WHERE op = 'UPDATE'
    AND started
    AND old_started
    AND lease IS DISTINCT FROM old_lease
    AND locked_by IS DISTINCT FROM old_locked_by

-- name: i3_a_lease_is_taken_from_nobody
-- A claim finds a free row, a start a claimed one: a row that is run goes by its settle, its
-- release or the reaper, and is free in between.
SELECT format('job %s (%s) was claimed by %s while %s held it', job_id, kind, locked_by,
    old_locked_by)
FROM audit.jobs
WHERE op = 'UPDATE'
    AND lease IS NOT NULL
    AND NOT started
    AND old_lease IS NOT NULL
    AND lease IS DISTINCT FROM old_lease

-- name: i3_a_token_is_granted_once
SELECT format('job %s (%s) was granted one token %s times', job_id, min(kind), count(*))
FROM audit.jobs
WHERE op = 'UPDATE'
    AND lease IS NOT NULL
    AND lease IS DISTINCT FROM old_lease
GROUP BY job_id, lease
HAVING count(*) > 1

-- name: i4_a_transition_has_its_event
-- In its own transaction: an event beside it is one that a crash in between loses.
SELECT format('charge %s became %s, and its transaction wrote %s events about it', c.charge_id,
    c.state, count(e.event_id))
FROM audit.charges AS c
LEFT JOIN audit.events AS e
    ON e.object_id = c.payment_intent_id
    AND e.xid = c.xid
    AND e.type = CASE c.state
        WHEN 'succeeded' THEN 'payment_intent.succeeded'
        ELSE 'payment_intent.payment_failed'
    END
WHERE c.state IN ('succeeded', 'failed')
    AND c.old_state IS DISTINCT FROM c.state
GROUP BY c.seq, c.charge_id, c.state
HAVING count(e.event_id) <> 1

-- name: i4_an_event_has_its_transition
SELECT format('event %s (%s) tells of %s, and no charge moved in its transaction', e.event_id,
    e.type, e.object_id)
FROM audit.events AS e
WHERE e.type IN ('payment_intent.succeeded', 'payment_intent.payment_failed')
    AND NOT EXISTS (
        SELECT
        FROM audit.charges AS c
        WHERE c.payment_intent_id = e.object_id
            AND c.xid = e.xid
            AND c.state = CASE e.type WHEN 'payment_intent.succeeded' THEN 'succeeded' ELSE 'failed' END
    )

-- name: i4_no_event_is_gone
-- Retention takes them after ninety days, and no soak lasts as long.
SELECT format('event %s (%s) was written and is gone', e.event_id, e.type)
FROM audit.events AS e
WHERE NOT EXISTS (SELECT FROM vpay.events AS kept WHERE kept.id = e.event_id)

-- name: i5_every_endpoint_has_its_delivery
-- Once an event is fanned out. `merchants` and `endpoints` name those that want every event.
SELECT format('event %s (%s) was fanned out and has no delivery to %s/%s', e.id, e.type, e.merchant_id,
    wanted.endpoint)
FROM vpay.events AS e
JOIN unnest(%(merchants)s::text[], %(endpoints)s::text[]) AS wanted (merchant, endpoint)
    ON wanted.merchant = e.merchant_id
WHERE e.fanout_state = 'done'
    AND NOT EXISTS (
        SELECT
        FROM vpay.webhook_deliveries AS d
        WHERE d.event_id = e.id AND d.endpoint_id = wanted.endpoint
    )

-- name: i5_fan_outs_never_fail
SELECT format('event %s (%s) could not be fanned out', id, type)
FROM vpay.events
WHERE fanout_state = 'failed'

-- name: i5_one_delivery_an_endpoint
SELECT format('event %s has %s deliveries to %s/%s', event_id, count(*), merchant_id, endpoint_id)
FROM vpay.webhook_deliveries
GROUP BY event_id, merchant_id, endpoint_id
HAVING count(*) > 1

-- name: i5_what_is_delivered_was_answered
SELECT format('delivery %s is delivered, and no attempt of it was answered with a 2xx', d.id)
FROM vpay.webhook_deliveries AS d
WHERE d.state = 'delivered'
    AND NOT EXISTS (
        SELECT
        FROM vpay.delivery_attempts AS a
        WHERE a.delivery_id = d.id AND a.status BETWEEN 200 AND 299
    )

-- name: i5_what_is_given_up_was_tried
-- To the end of its ladder – one attempt, and one for each of `rungs` – or until its receiver said
-- that it is gone. What another run overtook is on record, and counts for nothing.
SELECT format('delivery %s is %s after %s attempts that count', d.id, d.state, count(a.id))
FROM vpay.webhook_deliveries AS d
LEFT JOIN vpay.delivery_attempts AS a
    ON a.delivery_id = d.id AND a.counted AND a.attempt > d.ladder_from
WHERE d.state IN ('exhausted', 'gone')
GROUP BY d.id, d.state
HAVING CASE d.state
    WHEN 'gone' THEN count(*) FILTER (WHERE a.status = 410) = 0
    ELSE count(a.id) <= %(rungs)s::integer
END

-- name: i6_what_is_signed_is_what_is_stored
SELECT format('delivery %s signed other bytes than event %s has', d.id, e.id)
FROM vpay.webhook_deliveries AS d
JOIN vpay.events AS e ON e.id = d.event_id
WHERE d.digest_rev = e.body_rev
    AND d.digest IS DISTINCT FROM sha256(e.body)

-- name: i6_all_attempts_signed_the_same
SELECT format('delivery %s signed %s different bodies', a.delivery_id, count(DISTINCT a.digest))
FROM vpay.delivery_attempts AS a
JOIN vpay.webhook_deliveries AS d ON d.id = a.delivery_id
JOIN vpay.events AS e ON e.id = d.event_id
WHERE e.body_rev = 1
GROUP BY a.delivery_id
HAVING count(DISTINCT a.digest) > 1

-- name: i6_nothing_is_poisoned
SELECT format('delivery %s is poisoned: %s', id, last_excerpt)
FROM vpay.webhook_deliveries
WHERE state = 'poisoned'

-- name: i8_protected_kinds_are_never_parked
-- The built-in ones, by name: a kind that lost its protection would else lose this check with it.
SELECT format('job %s (%s) is parked: %s', id, kind, dead_reason)
FROM vpay.jobs
WHERE parked_at IS NOT NULL
    AND kind IN ('deliver_webhook', 'fan_out_events', 'grant_inbox', 'poll_charge',
        'resubmit_charge', 'scan_deliveries', 'scan_inbox', 'scan_live_charges', 'sweep_expired',
        'sweep_idle_customers', 'sweep_retention')
    AND dead_reason <> 'by_operator'
    AND NOT (kind = 'deliver_webhook' AND dead_reason = 'poisoned')

-- name: i8_a_dead_letter_has_its_evidence
SELECT format('job %s (%s) is parked as %s after %s starts, %s failures, %s crashes', id, kind,
    dead_reason, starts, failures, crashes)
FROM vpay.jobs
WHERE parked_at IS NOT NULL
    AND NOT CASE dead_reason
        WHEN 'by_operator' THEN true
        WHEN 'crashed' THEN crashes >= 5 AND starts >= crashes
        WHEN 'unknown_kind' THEN unknown_since IS NOT NULL AND starts >= 1
        WHEN 'attempts_exhausted' THEN last_error IS NOT NULL AND starts >= failures + 1
        WHEN 'by_task' THEN starts >= 1
        ELSE last_error IS NOT NULL AND starts >= 1
    END

-- name: i9_no_counter_goes_down
SELECT format('%s of %s %s went from %s to %s, by %s', counter, about, row_id, old_value,
    coalesce(value::text, 'nothing'), session)
FROM audit.went_down

-- name: i9_what_starts_was_claimed
SELECT format('job %s (%s) has %s starts of %s claims', job_id, min(kind), max(starts), max(claims))
FROM audit.jobs
WHERE starts > claims
GROUP BY job_id

-- name: i11_a_fact_is_kept_once
SELECT format('vendor''s event %s of %s %s is kept %s times', event_id, vendor, account, count(*))
FROM vpay.inbox_events
GROUP BY vendor, account, event_id
HAVING count(*) > 1

-- name: i12_no_transaction_idles
-- Since when, and not for how long: what is asked twice must be told in the same words twice.
SELECT format('session %s (%s) has been idle in a transaction since %s', pid, application_name,
    state_change)
FROM pg_stat_activity
WHERE datname = current_database()
    AND starts_with(state, 'idle in transaction')
    AND clock_timestamp() - state_change > interval '5 seconds'

-- name: i12_nothing_is_held_at_rest
-- When every process of ours has ended, so have its sessions, and their locks with them.
SELECT format('session %s (%s) is still there%s', a.pid, a.application_name, CASE
    WHEN count(l.pid) > 0 THEN format(', with %s advisory locks', count(l.pid))
    ELSE ''
END)
FROM pg_stat_activity AS a
LEFT JOIN pg_locks AS l ON l.pid = a.pid AND l.locktype = 'advisory'
WHERE %(ended)s::boolean
    AND a.datname = current_database()
    AND a.application_name LIKE 'vpay%'
GROUP BY a.pid, a.application_name

-- name: i14_charges_are_conserved
-- What was asked for is what has succeeded, has failed or is under way: nothing else, and
-- nothing twice.
SELECT format('in %s charges of %s were made, and there are %s', currency, made.amount,
    coalesce(standing.amount, 0))
FROM (
    SELECT currency, sum(amount) AS amount FROM audit.charges WHERE old_state IS NULL GROUP BY currency
) AS made
FULL JOIN (
    SELECT currency, sum(amount) AS amount FROM vpay.charges GROUP BY currency
) AS standing USING (currency)
WHERE made.amount IS DISTINCT FROM standing.amount

-- name: i14_what_succeeded_was_received
SELECT format('in %s charges of %s succeeded, and intents received %s', currency,
    coalesce(charged.amount, 0), coalesce(received.amount, 0))
FROM (
    SELECT currency, sum(amount) AS amount FROM vpay.charges WHERE state = 'succeeded' GROUP BY currency
) AS charged
FULL JOIN (
    SELECT currency, sum(amount_received) AS amount FROM vpay.payment_intents GROUP BY currency
    HAVING sum(amount_received) > 0
) AS received USING (currency)
WHERE charged.amount IS DISTINCT FROM received.amount

-- name: i14_a_success_is_posted_whole
-- One capture, and with what we kept of it all that the rail moved, in the charge's currency.
SELECT format('charge %s brought in %s %s, and %s captures and what was kept of them post %s', c.id,
    c.amount, c.currency, count(l.id) FILTER (WHERE l.kind = 'capture'), coalesce(sum(l.amount), 0))
FROM vpay.charges AS c
LEFT JOIN vpay.ledger_entries AS l ON l.charge_id = c.id AND l.currency = c.currency
WHERE c.state = 'succeeded'
GROUP BY c.id, c.amount, c.currency
HAVING count(l.id) FILTER (WHERE l.kind = 'capture') <> 1 OR sum(l.amount) <> c.amount

-- name: i14_only_a_success_is_posted
SELECT format('entry %s posts %s %s of charge %s, which is %s', l.id, l.amount, l.currency,
    l.charge_id, coalesce(c.state, 'not there'))
FROM vpay.ledger_entries AS l
LEFT JOIN vpay.charges AS c ON c.id = l.charge_id AND c.currency = l.currency
WHERE c.state IS DISTINCT FROM 'succeeded'

-- name: i14_what_is_posted_is_owed_to_its_merchant
-- Or is ours, as a fee. Nothing comes from anywhere but the payer.
SELECT format('entry %s (%s) of charge %s goes from %s to %s of %s', l.id, l.kind, l.charge_id,
    l.debit, l.credit, l.merchant_id)
FROM vpay.ledger_entries AS l
JOIN vpay.charges AS c ON c.id = l.charge_id
JOIN vpay.payment_intents AS i ON i.id = c.payment_intent_id
WHERE (l.kind, l.debit, l.credit) NOT IN (
        ('capture', 'payer_clearing', 'merchant_payable'),
        ('fee', 'payer_clearing', 'platform_fee_revenue')
    )
    OR l.merchant_id <> i.merchant_id
