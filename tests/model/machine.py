"""The rules: whatever may happen to an installation, in any order, one statement at a time.

Each of them finds something to do by itself: a program of few rules is no idle one.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.model import tasks
from tests.model.fleet import MERCHANT
from tests.model.outside import SAYS
from tests.model.program import ALL, IDLE, Program, move
from tests.model.sessions import Session
from vpay_tasks.payments import cancel, checkout, create_intent
from vpay_tasks.runtime.envelope import Envelope
from vpay_tasks.store import db, jobs
from vpay_tasks.webhooks import fanout

ANY: Final = st.integers(0, 11)
"""Which of those that are there."""

TWO: Final = st.integers(0, 1)

STEPS: Final = st.sampled_from((0, 1, 2, 3, 4, 6, ALL))

SCRIPT: Final = st.tuples(
    st.lists(st.sampled_from(tasks.SCRIPTS), max_size=2), st.sampled_from(tasks.ENDS)
).map(lambda parts: [*parts[0], parts[1]])

KINDS: Final = st.sampled_from(sorted(tasks.BY_NAME))

JUMPS: Final = st.sampled_from((0.6, 2.0, 6.5, 11.0, 31.0, 65.0))
"""Past a pulse, a worker's silence, its being counted on, an error's rung, a lease, a window."""

COMMITS: Final = ("COMMIT", "settles.settle", "jobs.start", "claims.claim", "jobs.release")


class Installation(Program):
    """One installation and everything that may befall it."""

    @initialize(
        wishes=st.lists(st.tuples(KINDS, SCRIPT, st.integers(1, 4)), min_size=1, max_size=3),
        payments=st.integers(0, 2),
        worked=st.integers(0, 2),
        steps=st.integers(0, 30),
    )
    def open(
        self, wishes: list[tuple[str, list[str], int]], payments: int, worked: int, steps: int
    ) -> None:
        """An installation that has been at work for a while, stopped somewhere in it."""
        self.everybody_pulses()
        for kind, script, number in wishes:
            self.enqueue(kind, None, script, number, False, False, 100)
        for _ in range(payments):
            self.pay(False, SAYS[0], 100)
        for _ in range(worked):
            self.carry_on()
            self.clock.advance(6.5)
        self.everybody_pulses()
        self.take_some(0)
        for each in range(steps):
            if ready := self.sessions.ready():
                ready[each % len(ready)].step()
        self.drawing = True

    # ----- what is asked for

    @move(
        kind=KINDS,
        key=st.none() | st.integers(0, 2),
        script=SCRIPT,
        number=st.integers(1, 3),
        late=st.booleans(),
        rolls_back=st.booleans(),
        steps=STEPS,
    )
    def enqueue(
        self,
        kind: str,
        key: int | None,
        script: list[str],
        number: int,
        late: bool,
        rolls_back: bool,
        steps: int,
    ) -> None:
        """An application's transaction, that may come to nothing."""
        app = self.app

        def work() -> None:
            with app.db.transaction() as tx:
                for each in range(number):
                    jobs.enqueue(
                        tx,
                        tasks.BY_NAME[kind],
                        {"script": script},
                        dedupe_key=None if key is None else f"{kind}/{key}/{each}",
                        delay=5.0 if late else 0.0,
                    )
                if rolls_back:
                    raise db.Abandon

        self.begin(app.spawn("enqueue", work), steps)

    @move(page=st.booleans(), says=st.sampled_from(SAYS), steps=STEPS)
    def pay(self, page: bool, says: str, steps: int) -> None:
        """An intent is made and confirmed; `page`: from a checkout page. To its first question
        the rail says that."""
        app, number = self.app, len(self.intents)

        def work() -> None:
            with app.db.transaction() as tx:
                intent = create_intent(tx, MERCHANT, 1000 + number, "EUR")
                if page:
                    url = "https://shop.example/"
                    checkout.create_session(tx, MERCHANT, intent.id, url=url, expires_in=60)
            self.intents.append(intent.id)
            self.confirmed(app, intent.id)

        session = app.spawn("pay", work)
        session.says = says
        self.begin(session, steps)

    @move(
        which=ANY,
        what=st.sampled_from(("confirm", "cancel", "callback", "close pages")),
        steps=STEPS,
    )
    def ask_of_a_payment(self, which: int, what: str, steps: int) -> None:
        """Confirmed once more, cancelled, called about by the rail; or its page's time is over."""
        app = self.app
        if not self.intents:
            self.pay(True, SAYS[0], 4)
        if not self.intents:
            return
        intent = self.intents[which % len(self.intents)]
        work: dict[str, Callable[[], object]] = {
            "confirm": lambda: self.confirmed(app, intent),
            "cancel": lambda: cancel(app.db, intent),
            "callback": lambda: self.called_back(app, which),
            "close pages": lambda: self.close_pages(app),
        }
        self.begin(app.spawn(what, work[what]), steps)

    @move(kind=KINDS, key=st.integers(0, 2), back=st.booleans(), steps=STEPS)
    def nudge(self, kind: str, key: int, back: bool, steps: int) -> None:
        """A job is wanted sooner; or, parked, at all."""
        app, name = self.app, f"{kind}/{key}/0"

        def work() -> None:
            with app.db.transaction() as tx:
                if back:
                    jobs.unpark(tx, name)
                else:
                    jobs.pull_forward(tx, name, floor=1.0)

        self.begin(app.spawn("nudge", work), steps)

    # ----- what the processes do

    @move(which=TWO, fails=st.booleans(), steps=STEPS)
    def dispatch(self, which: int, fails: bool, steps: int) -> None:
        """A dispatcher looks; `fails`: it loses the broker while it publishes."""
        process = self.world.dispatchers[which]
        self.everybody_pulses()
        self.world.bag.fails = fails and steps == ALL
        if not process.working("dispatch"):
            self.begin(process.look(), steps)
        self.world.bag.fails = False

    @move(worker=TWO, which=ANY, copy=st.booleans(), steps=STEPS)
    def consume(self, worker: int, which: int, copy: bool, steps: int) -> None:
        """A worker takes any message, or a copy of it."""
        process = self.world.workers[worker]
        bag = self.offered()
        if bag and process.has_room():
            place = which % len(bag)
            self.begin(process.take(bag[place] if copy else bag.pop(place)), steps)

    @move(
        worker=TWO,
        which=ANY,
        what=st.sampled_from(("replay", "forge", "flush", "lose")),
        steps=STEPS,
    )
    def broker(self, worker: int, which: int, what: str, steps: int) -> None:
        """The broker loses messages, or somebody else writes into it."""
        bag = self.offered()
        sent = self.world.bag.sent
        if not sent:
            return
        self.sessions.seen[f"broker: {what}"] += 1
        message = sent[-1 - which % len(sent)]
        match what:
            case "flush":
                bag.clear()
            case "lose":
                del bag[which % (len(bag) or 1) :][:1]
            case "replay" | "forge" if self.world.workers[worker].has_room():
                if what == "forge":
                    message = Envelope(message.queue, message.ids, uuid.UUID(int=which))
                self.begin(self.world.workers[worker].take(message), steps)

    @move(which=TWO, what=st.sampled_from(("pulse", "reap", "seed", "fan out")), steps=STEPS)
    def housekeep(self, which: int, what: str, steps: int) -> None:
        """What goes by the clock, at any time."""
        process, worker = self.world.dispatchers[which], self.world.workers[which]
        match what:
            case "pulse" if not worker.working("pulse"):
                self.begin(worker.beat(), steps)
            case "reap" if not process.timing():
                self.begin(process.reap(), steps)
            case "seed" if not process.timing():
                self.begin(process.seed(), steps)
            case "fan out":
                drain = functools.partial(fanout.drain, worker.db, self.world.endpoints)
                self.begin(worker.spawn("fan out", drain), steps)

    # ----- who goes on

    @move(
        which=ANY,
        steps=STEPS,
        says=st.sampled_from(SAYS),
        then=st.sampled_from((None, None, "before", "after")),
    )
    def go_on(self, which: int, steps: int, says: str, then: str | None) -> None:
        """One of those that can takes some steps, and may lose its connection at the next. A
        rail that it asks now says that."""
        if ready := self.sessions.ready() or self.take_some(1):
            session = ready[which % len(ready)]
            session.says = says
            self.begin(session, max(1, steps))
            session.fault = then

    @move(fresh=st.booleans())
    def work(self, fresh: bool) -> None:
        """A moment without trouble; `fresh`: and with new work from the dispatchers."""
        if fresh:
            self.carry_on()
        else:
            self.sessions.run(self.sessions.ready)

    @move(
        what=st.sampled_from(("a payer pays", "a payer declines", 200, 200, 500, None, 410)),
        which=ANY,
    )
    def outside(self, what: str | int | None, which: int) -> None:
        """A payer decides, or the merchant's receiver answers otherwise from now on."""
        if isinstance(what, str):
            self.world.rail.decide(which, pays=what == "a payer pays")
        else:
            self.receiver.mood = what

    @move(seconds=JUMPS, alive=st.booleans())
    def advance(self, seconds: float, alive: bool) -> None:
        """Time goes on; with `alive` the workers say so, else they were all stopped."""
        self.clock.advance(seconds)
        if alive:
            self.everybody_pulses()

    @move(seconds=st.sampled_from((31.0, 31.0, 2.0)), steps=STEPS, reaper=TWO, fully=st.booleans())
    def overtake(self, seconds: float, steps: int, reaper: int, fully: bool) -> None:
        """All were stopped, mostly for longer than a lease: others take over what they had
        begun. Then everybody goes on."""
        self.take_some(3)
        self.clock.advance(seconds)
        if not self.world.dispatchers[reaper].timing():
            self.begin(self.world.dispatchers[reaper].reap(), ALL)
        self.everybody_pulses()
        self.take_some(steps)
        if fully:
            self.sessions.run(self.sessions.ready)

    @move(which=ANY, done=st.booleans(), where=st.sampled_from(COMMITS))
    def lose_an_answer(self, which: int, done: bool, where: str) -> None:
        """A connection breaks in a commit: it is done or not, and nobody hears."""
        session = self.reach(which, where)
        if session is not None:
            session.fault = "after" if done else "before"
            session.step()

    @move(which=ANY, fault=st.sampled_from(("terminate", "cancel")))
    def trouble(self, which: int, fault: str) -> None:
        """The server ends a session, or tells one not to wait for a lock any longer."""
        waits = [one for one in self.sessions.live() if one.at.startswith("lock of")]
        session = waits[which % len(waits)] if waits else self.reach(which, "")
        if session is None:
            return
        connection = session.connection
        self.sessions.seen[f"trouble: {fault}"] += 1
        if fault == "terminate" and connection is not None and not connection.closed:
            self.server.terminate(connection.pid)
        if fault == "cancel" and session.at.startswith("lock of") and not session.ready():
            self.server.cancel(connection.pid)
            self.sessions.seen["cancelled while it waited for a lock"] += 1
        if not session.over and session.ready():
            session.step()

    def reach(self, which: int, where: str) -> Session | None:
        """A session that stands before such a statement ("": anywhere); until one does, they
        take turns."""
        for each in range(80):
            live = [one for one in self.sessions.live() if one.at not in IDLE or one.ready()]
            there = [one for one in live if where in (one.at, "")]
            if there:
                return there[which % len(there)]
            if ready := [one for one in live if one.ready()]:
                ready[each % len(ready)].step()
            elif not self.take_some(0):
                self.enqueue("model_plain", None, ["finish"], 1, False, False, 0)
        return None

    @move(which=ANY, newest=st.booleans())
    def kill(self, which: int, newest: bool) -> None:
        """kill -9 of a process in the middle of something; another is started, maybe of the
        release before."""
        busy = self.busy() or (self.take_some(3) and self.busy())
        if busy:
            process = busy[which % len(busy)]
            process.kill()
            self.sessions.seen[f"killed: {process.name.split()[0]}"] += 1
            self.world.replace(process, newest=newest)
            self.everybody_pulses()

    @move(which=TWO, copies=st.integers(0, 3))
    def drain_a_worker(self, which: int, copies: int) -> None:
        """SIGTERM: what it takes from here it gives back, also copies of what others run."""
        self.take_some(3)
        worker = self.world.workers[which]
        worker.drain()
        self.sessions.seen["drained"] += 1
        for message in self.world.bag.sent[-copies:] if copies else ():
            if worker.has_room():
                self.begin(worker.take(message), ALL)
