-- What 0006 added unvalidated, checked against the rows that stood; no writer waits for it.

ALTER TABLE vpay.lanes VALIDATE CONSTRAINT silence_only_counts;

ALTER TABLE vpay.webhook_deliveries VALIDATE CONSTRAINT replays_only_count;

ALTER TABLE vpay.webhook_deliveries VALIDATE CONSTRAINT ladder_begins_at_an_attempt;
