"""What must hold after every step, by what was committed and by what the processes were told.

A trigger notes every committed change of a job. Each is then judged as a move of one job's
life: from which state, by whose token, with which counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.model.connection import Server
from tests.model.fleet import World
from tests.model.tasks import JOURNAL
from vpay_tasks.core.settling import Verb

TRIGGERS: Final = """
CREATE SCHEMA model;
CREATE TABLE model.effects (job_id bigint NOT NULL);
CREATE TABLE model.moves (
    seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, old jsonb, new jsonb
);
CREATE FUNCTION model.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO model.moves (at, old, new)
    VALUES (now(), CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END,
        CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON vpay.jobs
    FOR EACH ROW EXECUTE FUNCTION model.note();
"""

WRONG: Final = """
SELECT 'I1: a live charge without its poll: ' || id FROM vpay.charges
WHERE state NOT IN ('succeeded', 'failed')
    AND NOT EXISTS (SELECT FROM vpay.jobs WHERE dedupe_key = 'poll:' || charges.id)
UNION ALL
SELECT 'I5: a pending delivery without its job: ' || id FROM vpay.webhook_deliveries
WHERE state = 'pending'
    AND NOT EXISTS (SELECT FROM vpay.jobs WHERE dedupe_key = 'webhook:' || webhook_deliveries.id)
UNION ALL
SELECT 'I4: ' || told || ' events of what happened once: ' || id || ' ' || state FROM (
    SELECT id, state, (SELECT count(*) FROM vpay.events WHERE object_id = payment_intent_id
        AND type = CASE state WHEN 'succeeded' THEN 'payment_intent.succeeded'
            ELSE 'payment_intent.payment_failed' END) AS told
    FROM vpay.charges WHERE state IN ('succeeded', 'failed')
) AS ended WHERE told <> 1
UNION ALL
SELECT 'I4: an event of what did not happen: ' || type || ' ' || object_id FROM vpay.events
WHERE NOT CASE type
    WHEN 'payment_intent.succeeded' THEN EXISTS (SELECT FROM vpay.charges
        WHERE payment_intent_id = object_id AND state = 'succeeded')
    WHEN 'payment_intent.payment_failed' THEN EXISTS (SELECT FROM vpay.charges
        WHERE payment_intent_id = object_id AND state = 'failed')
    WHEN 'payment_intent.canceled' THEN EXISTS (SELECT FROM vpay.payment_intents
        WHERE id = object_id AND status = 'canceled')
    WHEN 'checkout.session.expired' THEN EXISTS (SELECT FROM vpay.checkout_sessions
        WHERE id = object_id AND status = 'expired')
    ELSE false END
UNION ALL
SELECT 'I4: ' || count(*) || ' events: ' || type || ' ' || object_id FROM vpay.events
GROUP BY type, object_id HAVING count(*) > 1
UNION ALL
SELECT 'I4: nobody was told of a page that expired: ' || pages.id
FROM vpay.checkout_sessions AS pages LEFT JOIN vpay.events ON object_id = pages.id
WHERE status = 'expired' AND events.id IS NULL
UNION ALL
SELECT 'I5: an event fanned out twice, or to nobody: ' || events.id || ' ' || count(deliveries.id)
FROM vpay.events LEFT JOIN vpay.webhook_deliveries AS deliveries ON deliveries.event_id = events.id
GROUP BY events.id, events.type, events.fanout_state
HAVING count(deliveries.id) <> CASE WHEN events.fanout_state <> 'done' THEN 0
    WHEN events.type = 'payment_intent.payment_failed' THEN 2 ELSE 1 END
UNION ALL
SELECT 'I14: captured otherwise than it was paid: ' || charges.id
FROM vpay.charges LEFT JOIN vpay.ledger_entries AS entries ON entries.charge_id = charges.id
GROUP BY charges.id
HAVING coalesce(sum(entries.amount), 0)
    <> CASE state WHEN 'succeeded' THEN charges.amount ELSE 0 END
UNION ALL
SELECT 'I2: a charge and its intent disagree: ' || charges.id || ' ' || state || ' ' || status
FROM vpay.charges JOIN vpay.payment_intents AS intents ON intents.id = payment_intent_id
WHERE (state = 'succeeded') <> (status = 'succeeded')
UNION ALL
SELECT 'a lane of one has ' || count(*) || ' leased: ' || lane FROM vpay.jobs
WHERE locked_at IS NOT NULL AND lane = 'flight' GROUP BY lane HAVING count(*) > 1
"""


@dataclass
class Life:
    """One job, as its moves were committed."""

    kind: str
    key: str | None
    tokens: set[str] = field(default_factory=set)
    row: dict[str, Any] | None = None
    ended_by: str | None = None


class Audit:
    """The judge of one example."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: dict[int, Life] = {}
        self.presented: dict[str, set[tuple[int, str]]] = {
            verb: set() for verb in ("settle", "start", "release", "renew")
        }
        self.told: list[tuple[int, UUID, bool, Verb, bool]] = []
        self.settled: set[tuple[int, str]] = set()

    def look(self) -> None:
        """Raises AssertionError with every promise that is broken now."""
        server = self.world.server
        wrong = []
        for at, old, new in server.rows(
            "WITH moved AS (DELETE FROM model.moves RETURNING seq, at, old, new)"
            " SELECT extract(epoch FROM at)::float8, old, new FROM moved ORDER BY seq"
        ):
            wrong += self._moved(at, old, new)
        wrong += [text for (text,) in server.rows(WRONG)]
        wrong += self._lies()
        wrong += self._money(server)
        assert not wrong, "\n" + "\n".join(wrong)

    def _moved(
        self, at: float, old: dict[str, Any] | None, new: dict[str, Any] | None
    ) -> list[str]:
        if old is None:
            assert new is not None
            self.jobs[new["id"]] = Life(new["kind"], new["dedupe_key"], row=new)
            return []
        life, id_ = self.jobs[old["id"]], old["id"]
        life.row = new
        if new is None:
            life.ended_by = old["lease"]
            self.settled.add((id_, str(old["lease"])))
            return self._finished(id_, life, old)
        wrong = []
        if any(new[name] < old[name] for name in ("claims", "starts")):
            wrong.append(f"I9: a counter of job {id_} went down")
        if new["lease"] != old["lease"]:
            wrong += self._changed_hands(at, id_, life, old, new)
        elif old["lease"] is not None and new["starts"] != old["starts"]:
            wrong.append(f"I3: job {id_} was started under the token that travelled")
        elif new["run_at"] > old["run_at"] and old["parked_at"] is None:
            wrong.append(f"job {id_} was put off by who does not hold it")
        wrong += self._parked(id_, life, old, new)
        return wrong

    def _finished(self, id_: int, life: Life, old: dict[str, Any]) -> list[str]:
        token = old["lease"]
        if (id_, token) not in self.presented["settle"]:
            return [f"I3: job {id_} ({life.kind}) was finished by who did not hold {token}"]
        if not life.kind.startswith("model_"):
            return []
        said = JOURNAL.answers.get((id_, UUID(token)))
        effects = self.world.server.rows("SELECT FROM model.effects WHERE job_id = %s", id_)
        if len(effects) != (said == "finish"):
            return [f"I2: job {id_} ended by {said!r} and its effect is there {len(effects)} times"]
        return [] if said in ("done", "finish") else [f"I1: job {id_} was finished by {said!r}"]

    def _changed_hands(
        self, at: float, id_: int, life: Life, old: dict[str, Any], new: dict[str, Any]
    ) -> list[str]:
        before, after = old["lease"], new["lease"]
        wrong = []
        if after is not None and after in life.tokens:
            wrong.append(f"I3: job {id_} was given a token twice")
        if after is not None:
            life.tokens.add(after)
        if before is None:
            claimed = new["claims"] == old["claims"] + 1 and new["started_at"] is None
            return wrong if claimed else [*wrong, f"I3: job {id_} got a lease without a claim"]
        if after is not None:
            # A swap that is sent again, since its answer was lost, is the same start.
            starts = old["starts"] + (old["started_at"] is None)
            if new["starts"] != starts or (id_, before) not in self.presented["start"]:
                wrong.append(f"I3: job {id_} was started by who did not hold {before}")
            return wrong
        if new["settled_by"] != old["settled_by"]:
            self.settled.add((id_, before))
            if new["settled_by"] != before or (id_, before) not in self.presented["settle"]:
                wrong.append(f"I3: job {id_} was settled by who did not hold {before}")
        elif (id_, before) not in self.presented["release"]:
            wrong += self._reaped(at, id_, old, new)
        return wrong

    def _reaped(self, at: float, id_: int, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        wrong = []
        if new["crashes"] != old["crashes"] + (old["started_at"] is not None):
            wrong.append(f"I8: reaping job {id_} miscounted its crashes")
        expired = self.world.server.rows(
            "SELECT %s::timestamptz < to_timestamp(%s)", old["lease_until"], at
        )[0][0]
        if expired:
            return wrong
        if old["started_at"] is None:
            wrong.append(f"I3: job {id_} was taken from its dispatcher before its lease was over")
        elif self.world.proves_its_life(old["locked_by"]):
            wrong.append(f"I3: job {id_} was taken from a worker that lives")
        return wrong

    def _parked(self, id_: int, life: Life, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        if new["parked_at"] is None or old["parked_at"] is not None:
            return []
        reason, token = new["dead_reason"], old["lease"]
        said = JOURNAL.answers.get((id_, UUID(token))) if token else None
        evidence = {
            "crashed": new["crashes"] >= 5,
            "attempts_exhausted": life.kind == "model_plain" and new["failures"] >= 3,
            "unknown_kind": life.kind == "model_new",
            "by_task": said == "park",
        }
        if life.kind.startswith("model_") and evidence.get(reason, False):
            return []
        return [f"I8: job {id_} ({life.kind}) was parked as {reason} without evidence"]

    def _lies(self) -> list[str]:
        """A worker that is told that its settle stands is told so for good."""
        wrong = []
        for id_, lease, won, verb, by_count in self.told:
            life = self.jobs[id_]
            now = life.ended_by if life.row is None else life.row["settled_by"]
            gone = by_count and life.row is None
            if won and not gone and (id_, str(lease)) not in self.settled:
                wrong.append(f"I3: a settle of job {id_} is said to stand, and does not")
            # Who could not be told whether its finishing() stands settles once more, as a
            # retry: that one is lost, whatever became of the first.
            again = life.row is None and verb is not Verb.FINISH
            if not won and now == str(lease) and not again:
                wrong.append(f"a settle of job {id_} stands, and is said to be lost")
        self.told.clear()
        return wrong

    def _money(self, server: Server) -> list[str]:
        """The rail's books beside ours: nothing is paid here that was not paid there, nor
        failed that was, and no intent has two payments."""
        orders = self.world.rail.orders
        wrong = []
        for reference, state, amount in server.rows(
            "SELECT provider_reference_id, state, amount FROM vpay.charges"
            " WHERE state IN ('succeeded', 'failed')"
        ):
            theirs = orders.get(reference)
            if (state == "succeeded") != (theirs == "succeeded") or theirs == "pending":
                wrong.append(f"I10: charge {reference} {state}, and the rail says {theirs}")
            if theirs == "succeeded" and self.world.rail.amounts[reference] != amount:
                wrong.append(f"I14: charge {reference} is of another amount than was paid")
        return wrong
