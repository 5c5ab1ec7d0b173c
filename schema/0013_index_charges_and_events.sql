-- For what looks after charges: the backstop scan, the unresolved list, one charge's timeline.

-- The scan goes through live charges in pages, from the one that was longest untouched. Many
-- may have been touched in one instant, so a page ends at an id.
CREATE INDEX charges_untouched ON vpay.charges (updated_at, id)
    WHERE state IN ('submitting', 'submitted', 'pending', 'unresolved');

-- A handful of rows: they are counted at every scrape, and listed oldest first.
CREATE INDEX charges_unresolved ON vpay.charges (created_at) WHERE state = 'unresolved';

-- The events of one intent, for the person who asks what became of it.
CREATE INDEX events_of_object ON vpay.events (object_id, seq);

-- Last, so that its lock is held for the commit alone. The release before loses nothing: what
-- it asked of this one, the new ones answer.
-- squawk-ignore require-concurrent-index-deletion
DROP INDEX vpay.charges_live;
