"""From facts to findings: pure, so that each can be tried in a table. A finding has one
remedy that can be typed: a command, a statement for psql, or a line of the settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from vpay_tasks.doctor import books, postgres
from vpay_tasks.doctor.facts import Facts, Work
from vpay_tasks.doctor.finding import RANK, Finding, counted, listed, literal, many
from vpay_tasks.errors import DeadReason, Severity, sanitise
from vpay_tasks.status import advice, human
from vpay_tasks.store.gauges import StateCount

BEHIND_S: Final = 120.0
"""Age of a ready job from which a served queue is behind. Lower: every burst is one."""


def find(facts: Facts) -> list[Finding]:
    """Every finding, the worst first. Findings that follow from another one are left out."""
    found = [*_servers(facts)]
    if facts.server is not None:
        found += postgres.settings_of(facts, facts.server)
    if facts.work is not None:
        work = facts.work
        found += [*_dispatch(facts, work), *_queues(facts, work), *_jobs(facts, work)]
        found += [*_money(work), *books.kept(work.books), *_webhooks(work)]
        found += [*postgres.standbys(work), *postgres.held_up(work, facts.server)]
    return sorted(found, key=lambda finding: RANK.index(finding.severity))


def _servers(facts: Facts) -> Iterator[Finding]:
    if facts.no_postgres is not None:
        yield Finding("postgres_unreachable", Severity.PAGE, facts.no_postgres, "pg_isready")
    if facts.no_broker is not None:
        yield Finding(
            "broker_unreachable",
            Severity.PAGE,
            f"{facts.no_broker}. Nothing is lost, and nothing is handed out.",
            "rabbitmq-diagnostics check_running" if facts.rabbit else "valkey-cli ping",
        )
    if facts.evicts is not None:
        yield Finding(
            "broker_evicts",
            Severity.WARN,
            f"A full broker throws messages away ({facts.evicts}); each costs the claim lease.",
            "valkey-cli CONFIG SET maxmemory-policy noeviction",
        )
    if facts.missing:
        yield Finding(
            "migrations_missing",
            Severity.PAGE,
            f"{many(len(facts.missing), 'migration')} missing, the first is {facts.missing[0]}.",
            "vpay-tasks migrate",
        )
    if facts.no_tasks is not None:
        yield Finding(
            "tasks_unloadable",
            Severity.ERROR,
            f"The task modules can't be loaded here, so unknown kinds can't be told:"
            f" {facts.no_tasks}",
            "settings: [worker] modules = [...]",
        )


def _dispatch(facts: Facts, work: Work) -> Iterator[Finding]:
    seen = work.vitals
    oldest = max(work.gauges.ages.values(), default=0.0)
    # Through a pooler a session's name is whoever's used it last: there only what waits tells.
    blind = facts.pooled and oldest <= BEHIND_S
    if not seen.live_dispatchers and not blind:
        if seen.dispatchers:
            yield Finding(
                "dispatcher_stuck",
                Severity.PAGE,
                "The dispatcher is connected and has asked for nothing for 15 s.",
                "systemctl restart vpay-dispatch",
            )
        else:
            yield Finding(
                "dispatcher_missing",
                Severity.PAGE,
                "No dispatcher is connected: no job is handed out.",
                "vpay-dispatch",
            )
    elif work.checkup.missing_singletons:
        names = work.checkup.missing_singletons
        yield Finding(
            "singletons_missing",
            Severity.ERROR,
            f"Dispatchers seed {listed(names)} every 10 s, and it is not there.",
            "systemctl restart vpay-dispatch",
        )
    if overdue := sum(seen.overdue.values()):
        yield Finding(
            "leases_overdue",
            Severity.ERROR,
            f"{many(overdue, 'lease')} overdue in {listed(seen.overdue)}: no reaper frees them.",
            "systemctl restart vpay-dispatch",
        )
    lost = sum(worker.lost for worker in work.gauges.workers)
    if lost:
        yield Finding(
            "workers_lost",
            Severity.WARN,
            f"{many(lost, 'worker process', 'worker processes')} ended without a goodbye"
            " within a day.",
            "journalctl -p warning -u 'vpay-worker@*'",
        )


def _queues(facts: Facts, work: Work) -> Iterator[Finding]:
    served = {q for w in work.gauges.workers if w.alive and not w.draining for q in w.queues}
    waiting: dict[str, int] = defaultdict(int)
    present = dict.fromkeys(count.queue for count in work.gauges.counts)
    for count in work.gauges.counts:
        if count.state in {"ready", "claimed"}:
            waiting[count.queue] += count.jobs
    for queue in present:
        if queue not in facts.queues:
            yield Finding(
                "queue_not_dispatched",
                Severity.ERROR,
                f"The queue {queue} has jobs and is not in dispatch.queues: they never run.",
                f'settings: add "{queue}" to [dispatch] queues',
            )
        elif waiting[queue] and queue not in served:
            yield Finding(
                "queue_unserved",
                Severity.PAGE,
                f"No live worker serves {queue}, where {many(waiting[queue], 'job')} due.",
                f"dramatiq vpay_tasks.actors --queues {queue}",
            )
        elif work.gauges.ages.get(queue, 0.0) > BEHIND_S and work.vitals.live_dispatchers:
            yield Finding(
                "queue_behind",
                Severity.WARN,
                f"The oldest ready job of {queue} waits for {human(work.gauges.ages[queue])}.",
                f"dramatiq vpay_tasks.actors --queues {queue}",
            )


def _jobs(facts: Facts, work: Work) -> Iterator[Finding]:
    parked: dict[DeadReason, list[StateCount]] = defaultdict(list)
    for count in work.gauges.counts:
        if count.reason is not None:
            parked[DeadReason(count.reason)].append(count)
    for reason, counts in parked.items():
        number = sum(count.jobs for count in counts)
        yield Finding(
            f"parked_{reason.value}",
            _loudness(reason),
            f"{many(number, 'job')} parked as {reason.value}"
            f" ({listed({count.kind for count in counts})}). {advice(reason)}",
            "vpay-tasks status",
        )
    unknown = {c.kind for c in work.gauges.counts if c.reason is None} - set(facts.kinds)
    if unknown and facts.no_tasks is None:
        yield Finding(
            "kinds_unknown",
            Severity.ERROR,
            f"Jobs wait for {listed(unknown)}, which no task module declares here.",
            "settings: add the module that declares it to [worker] modules",
        )


def _loudness(reason: DeadReason) -> Severity:
    match reason:
        case DeadReason.POISONED:
            return Severity.PAGE
        case DeadReason.BY_OPERATOR:
            return Severity.INFO
        case DeadReason.BY_TASK | DeadReason.REJECTED:
            return Severity.WARN
        case (
            DeadReason.MISCONFIGURED
            | DeadReason.NOT_IMPLEMENTED
            | DeadReason.CRASHED
            | DeadReason.UNKNOWN_KIND
            | DeadReason.ATTEMPTS_EXHAUSTED
        ):
            return Severity.ERROR


def _money(work: Work) -> Iterator[Finding]:
    if number := work.vitals.contradicted:
        yield Finding(
            "charges_contradicted",
            Severity.PAGE,
            f"{counted(number, 'charge')} contradicted by the rail: compare both sides.",
            "vpay-tasks charges --unresolved",
        )
    if number := work.vitals.unresolved:
        yield Finding(
            "charges_unresolved",
            Severity.ERROR,
            f"{counted(number, 'charge')} unresolved: the horizon has passed without the rail's"
            " word, and it is asked hourly.",
            "vpay-tasks charges --unresolved",
        )


def _webhooks(work: Work) -> Iterator[Finding]:
    if number := work.vitals.inbox.dead:
        yield Finding(
            "inbox_dead",
            Severity.ERROR,
            f"{counted(number, 'event')} dead in the inbox: a vendor believes that we have it."
            " Mend the cause, then have it granted.",
            "vpay-tasks inbox list --state dead",
        )
    if given_up := work.checkup.given_up:
        states = ", ".join(f"{number} {state}" for state, number in given_up.items())
        yield Finding(
            "deliveries_given_up",
            Severity.WARN,
            f"Deliveries of the last day that nobody will try again: {states}.",
            "SELECT id, endpoint_id, state, last_status, last_excerpt FROM"
            " vpay.webhook_deliveries WHERE ended_at > now() - interval '1 day'"
            " AND state <> 'delivered';",
        )
    paused = [lane for lane in work.checkup.closed_lanes if lane.paused]
    if paused:
        first = paused[0]
        yield Finding(
            "lanes_paused",
            Severity.INFO,
            f"{many(len(paused), 'lane')} paused, the first is {sanitise(first.lane)} of"
            f" {first.queue}: its jobs wait.",
            "UPDATE vpay.lanes SET paused = false"  # noqa: S608 - for a person, never run here
            f" WHERE queue = {literal(first.queue)}"
            f" AND lane = {literal(first.lane)};",
        )
    tripped = [lane for lane in work.checkup.closed_lanes if not lane.paused]
    if tripped:
        yield Finding(
            "circuits_open",
            Severity.WARN,
            f"{many(len(tripped), 'circuit')} open, the first is {sanitise(tripped[0].lane)} of"
            f" {tripped[0].queue}: its receiver fails; it is tried again by itself.",
            "SELECT queue, lane, circuit_until, reason FROM vpay.lanes"
            " WHERE circuit_until > now();",
        )
