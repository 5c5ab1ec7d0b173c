"""What is under way when a fault comes, and how it must end: a payment, a vendor's event."""

from __future__ import annotations

import threading
import uuid
import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import psycopg
import urllib3

from tests.inbox.signing import by_stripe, stripe_event
from tests.kills import gates
from tests.kills.world import ENDPOINTS, SHOP, Member, World
from tests.payment_kit import force
from vpay_sandbox import journal
from vpay_tasks import config, payments, wiring

APPROVED, NO_FUNDS = "46733123601", "46733123625"
"""Both end at their first poll."""
AMOUNT: Final = 1_000


class Play(ABC):
    """One fact, from its beginning to its end. `about` names it at the gates."""

    about: str

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.since = gates.begin_of_trail(world.keeper)

    @abstractmethod
    def begin(self) -> None:
        """Set it off; returns at once."""

    @abstractmethod
    def nudge(self) -> None:
        """Let the time pass that something waits for; whoever acts from outside acts again."""

    @abstractmethod
    def over(self) -> bool:
        """Whether nothing more will become of it."""

    @abstractmethod
    def check(self) -> None:
        """Assert that it ended as it must, whatever came in between."""

    def words(self, kind: str) -> list[str]:
        """What became of each row of `kind` that is about this, or of the singleton `kind`."""
        return gates.trail(self.world.keeper, self.since, kind, self.subject(kind))

    def subject(self, kind: str) -> str:
        """What a gate of `kind` is to look for."""
        return kind if kind in SINGLETONS else self.about

    def is_shared(self, kind: str) -> bool:
        """Whether the rows of `kind` are about other plays, too."""
        return kind in SINGLETONS

    def waits_for_one(self, stopped: Member) -> bool:
        """Whether nobody but `stopped` can go on with it."""
        return False


SINGLETONS: Final = {"fan_out_events"}


class Payment(Play):
    """A payment over the push rail. Every other one is one that the rail refuses."""

    def __init__(
        self, world: World, name: str, *, by_application: bool = False, merchant: str = SHOP
    ) -> None:
        super().__init__(world, name)
        self.pays = zlib.crc32(name.encode()) % 2 == 0
        self.payer = APPROVED if self.pays else NO_FUNDS
        self.merchant = merchant
        self.customer: Member | None = None
        self._by_application = by_application
        self._held = False
        """Whether somebody who does not let go of it holds the charge's row."""
        self.deadline = 45.0
        with world.database.transaction() as tx:
            self.about = payments.create_intent(tx, merchant, AMOUNT, "EUR").id

    def begin(self) -> None:
        if self._by_application:
            self.confirm()
        else:
            settings = config.read(self.world.fleet.write(), {})
            rail = wiring.rails(settings)["mtn_momo"]
            answer = payments.confirm(self.world.database, self.about, rail=rail, payer=self.payer)
            assert isinstance(answer, payments.Confirmed), answer

    def waits_for_one(self, stopped: Member) -> bool:
        return stopped is self.customer and (self.charge is None or self._held)

    def confirm(self) -> None:
        """By an application of its own, in a process that may die."""
        self.customer = self.world.application(self.about, self.payer, deadline=self.deadline)

    @property
    def charge(self) -> tuple[str, str, str] | None:
        """Its id, its state, and the rail's name of it."""
        rows = self.world.ask(
            "SELECT id, state, provider_reference_id FROM vpay.charges"
            " WHERE payment_intent_id = %s",
            self.about,
        )
        return rows[0] if rows else None

    def nudge(self) -> None:
        charge = self.charge
        if charge is None:
            if self.customer is not None and not self.customer.alive:
                self.confirm()
            return
        customer = self.customer
        gone = customer is None or customer.stopped or not customer.alive
        if not gone:
            return
        if charge[1] == "submitting":
            # Its confirm's time is over, as it is for whoever watches the clock.
            self._grow_old(charge[0])
        self.world.ask(
            "UPDATE vpay.jobs SET run_at = now(), due = lane IS NOT NULL WHERE lease IS NULL"
            " AND run_at > now() + interval '1 second' AND kills.about(kind, to_jsonb(jobs)) = %s"
            " RETURNING 1",
            self.about,
        )

    def _grow_old(self, charge: str) -> None:
        try:
            with self.world.database.transaction() as tx:
                tx.execute("SET LOCAL lock_timeout = '100ms'")
                force(tx, charge, age=61)
                tx.execute("SET LOCAL session_replication_role = replica")
                tx.execute(
                    "UPDATE vpay.charges SET first_not_found_at = first_not_found_at"
                    " - interval '1 minute' WHERE id = %s",
                    (charge,),
                )
        except psycopg.errors.LockNotAvailable:
            self._held = True

    def over(self) -> bool:
        charge = self.charge
        left = self.world.ask(
            "SELECT kind, claims, starts, run_at - now(), last_error FROM vpay.jobs"
            " WHERE kills.about(kind, to_jsonb(jobs)) = %s",
            self.about,
        )
        assert charge is not None, "no charge"
        assert charge[1] in {"succeeded", "failed"}, charge
        assert not left, left
        assert self._states() == [("delivered",)] * len(ENDPOINTS[self.merchant]), self._states()
        return True

    def _states(self) -> list[tuple[Any, ...]]:
        return self.world.ask(
            "SELECT state FROM vpay.webhook_deliveries AS deliveries"
            " JOIN vpay.events ON events.id = event_id WHERE object_id = %s",
            self.about,
        )

    def check(self) -> None:
        charge = self.charge
        assert charge is not None
        word, status, received = (
            ("succeeded", "succeeded", AMOUNT)
            if self.pays
            else ("failed", "requires_payment_method", 0)
        )
        assert charge[1] == word
        assert self.world.ask(
            "SELECT status, amount_received FROM vpay.payment_intents WHERE id = %s", self.about
        ) == [(status, received)]
        types = self.world.ask("SELECT type FROM vpay.events WHERE object_id = %s", self.about)
        assert types == [("payment_intent." + ("succeeded" if self.pays else "payment_failed"),)]
        assert self.words("charges").count("settled") <= 1
        assert self.effects() == ["prompt", "moved"][: 1 + self.pays]
        digests = self.world.ask(
            "SELECT encode(sha256(body), 'hex') FROM vpay.events WHERE object_id = %s", self.about
        )
        assert {(post["sha256"],) for post in self.posts()} == set(digests)
        assert all(post["verified"] for post in self.posts())

    def effects(self) -> list[str]:
        """What the rail has done for it."""
        charge = self.charge
        lines = journal.read(self.world.folder / "rail.jsonl", "effect")
        return [one["effect"] for one in lines if charge and one["reference"] == charge[2]]

    def submits(self) -> int:
        """How often the rail was asked for it."""
        charge = self.charge
        lines = journal.read(self.world.folder / "rail.jsonl", "request")
        mine = [one for one in lines if charge and one["reference"] == charge[2]]
        return sum(one["op"] == "submit" for one in mine)

    def posts(self) -> list[dict[str, Any]]:
        """Each request that a receiver had of its event."""
        ((event,),) = self.world.ask("SELECT id FROM vpay.events WHERE object_id = %s", self.about)
        lines = journal.read(self.world.folder / "receiver.jsonl", "delivery")
        return [one for one in lines if one["event"] == event]


class Vendor(Play):
    """A vendor's event, sent to our servers until one of them says that it is kept."""

    PATH: ClassVar = "/inbox/stripe"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.about = f"evt_{uuid.uuid4().hex}"
        self._given = by_stripe(stripe_event(self.about, about=f"pi_{self.about}"))
        self.told: list[int | None] = []
        """What it was answered, each time; None: nothing."""
        self._sending: threading.Thread | None = None
        self._by: Member | None = None

    def begin(self) -> None:
        self._sending = threading.Thread(target=self._send, daemon=True)
        self._sending.start()

    def _send(self) -> None:
        self._by = self.world.living("web")[0]
        client = self._by.client
        assert client is not None
        try:
            told = client.send(self.PATH, self._given.body, **self._given.headers).status
        except urllib3.exceptions.HTTPError:
            told = None
        self.told.append(told)
        self.world.vendors.append(
            {"vendor": "stripe", "account": "", "event": self.about, "status": told}
        )

    def nudge(self) -> None:
        assert self._sending is not None
        unheard = self._by is not None and self._by.stopped
        if unheard or (not self._sending.is_alive() and 200 not in self.told):
            self.world.at_strength(web=2)
            self.begin()

    def over(self) -> bool:
        assert 200 in self.told, self.told
        query = "SELECT state FROM vpay.inbox_events WHERE event_id = %s"
        assert self.world.ask(query, self.about) == [("done",)]
        left = self.world.ask(
            "SELECT id FROM vpay.jobs WHERE kills.about(kind, to_jsonb(jobs)) = %s", self.about
        )
        assert not left, left
        return True

    def check(self) -> None:
        query = "SELECT count(*) FROM public.effects WHERE event_id = %s"
        assert self.world.ask(query, self.about) == [(1,)]
