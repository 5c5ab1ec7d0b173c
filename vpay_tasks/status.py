"""`vpay-tasks status`: the gauges as text for a person, and as a stable JSON object."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from vpay_tasks.config import Settings
from vpay_tasks.errors import DeadReason
from vpay_tasks.store import gauges
from vpay_tasks.store.gauges import Gauges, StateCount, WorkerStats

RUN_AGAIN: Final = (
    "UPDATE vpay.jobs SET parked_at = NULL, dead_reason = NULL, unknown_since = NULL,"
    " failures = 0, crashes = 0, run_at = now(), due = lane IS NOT NULL"
    " WHERE parked_at IS NOT NULL AND id = …"
)
"""For a person at a psql prompt; never executed from here."""


def advice(reason: DeadReason) -> str:
    """What a person does about a job that is parked for `reason`."""
    match reason:
        case DeadReason.POISONED:
            return "A bug or a broken row: read the error, mend it, run the job again."
        case DeadReason.MISCONFIGURED:
            return "Settings or credentials are wrong: correct them, restart, run it again."
        case DeadReason.NOT_IMPLEMENTED:
            return "The code does not do this yet: deploy a version that does, run it again."
        case DeadReason.REJECTED:
            return "Its input can never work: see who enqueued it, then delete it."
        case DeadReason.CRASHED:
            return "Its process died several times in a row: look for memory or native crashes."
        case DeadReason.UNKNOWN_KIND:
            return "No worker knows its kind: deploy the module that declares it, or delete it."
        case DeadReason.ATTEMPTS_EXHAUSTED:
            return "It failed max_attempts times: mend what the error names, run it again."
        case DeadReason.BY_TASK:
            return "The task gave up by itself and said why: decide, then run it again or delete."
        case DeadReason.BY_OPERATOR:
            return "A person parked it: ask them before you run it again."


def as_json(seen: Gauges, at: datetime, settings: Settings) -> dict[str, Any]:
    """The same facts as `as_text`. Keys are only ever added; durations are seconds."""
    return {
        "at": at.isoformat(timespec="seconds"),
        "path": "pooled" if _pooled(settings) else "fast",
        "attention": list(attention(seen, settings)),
        "counted_up_to": gauges.CAP,
        "jobs_estimate": seen.jobs_estimate,
        "queues": [
            {
                "queue": queue,
                "age_s": _rounded(seen.ages.get(queue)),
                "capped": sorted({c.state for c in counts if c.capped}),
                "kinds": [
                    {"kind": kind, **states, "broker_losses": losses}
                    for kind, (states, losses) in _by_kind(counts).items()
                ],
            }
            for queue, counts in _by_queue(seen.counts).items()
        ],
        "workers": [
            {
                "id": worker.id,
                "host": worker.host,
                "pid": worker.pid,
                "threads": worker.threads,
                "queues": list(worker.queues),
                "state": _state(worker),
                "alive": worker.alive,
                "pulse_age_s": _rounded(worker.pulse_age),
                "up_s": _rounded(worker.age),
            }
            for worker in _in_order(seen.workers)
        ],
        "counters": dict(sorted(seen.counters().items())),
        "parked": {
            "reasons": [
                {"reason": reason.value, "jobs": jobs, "advice": advice(reason)}
                for reason, jobs in _parked_by_reason(seen.counts)
            ],
            "latest": [
                {
                    "id": job.id,
                    "queue": job.queue,
                    "kind": job.kind,
                    "dedupe_key": job.dedupe_key,
                    "reason": job.reason,
                    "error": job.error,
                    "starts": job.starts,
                    "failures": job.failures,
                    "age_s": _rounded(job.age),
                }
                for job in seen.parked
            ],
        },
    }


def as_text(seen: Gauges, at: datetime, settings: Settings) -> str:
    """Several aligned tables; only what is there is shown."""
    blocks = [
        f"Status at {at:%Y-%m-%d %H:%M:%S} UTC\n{_path_text(settings)}",
        _queues_text(seen),
        _workers_text(seen.workers),
        _counters_text(seen),
        _parked_text(seen),
        "\n".join(["Attention", *(f"  {line}" for line in attention(seen, settings))])
        if any(attention(seen, settings))
        else "",
    ]
    return "\n\n".join(block for block in blocks if block)


def attention(seen: Gauges, settings: Settings) -> Iterator[str]:
    """Sentences about what will not mend itself."""
    served = {q for w in seen.workers if w.alive and not w.draining for q in w.queues}
    for queue, counts in _by_queue(seen.counts).items():
        waiting = sum(c.jobs for c in counts if c.state in {"ready", "claimed"})
        if waiting and queue not in served:
            yield f"No live worker serves the queue {queue}, where {_jobs(waiting)} due."
        if queue not in settings.dispatch.queues:
            yield f"The queue {queue} has jobs, but dispatch.queues does not name it."
    parked = sum(count.jobs for count in seen.counts if count.state == "parked")
    if parked:
        more = "at least " if any(c.capped for c in seen.counts if c.state == "parked") else ""
        yield f"{more}{_jobs(parked)} parked and will not run until somebody acts.".capitalize()
    if _pooled(settings) and seen.unset:
        names = ", ".join(seen.unset)
        yield f"The role lacks what a pooled session needs ({names}): ALTER ROLE, see the README."
    if _pooled(settings) and any(worker.alive and worker.holds_lock for worker in seen.workers):
        yield 'A worker holds a session lock although database.pulse = "lease": restart it.'


def _pooled(settings: Settings) -> bool:
    return settings.database.pulse == "lease"


def _path_text(settings: Settings) -> str:
    if _pooled(settings):
        return "Path to Postgres: pooled (leases tell the dead; work is found by polling)"
    return "Path to Postgres: fast (session locks tell the dead; work is notified)"


def _queues_text(seen: Gauges) -> str:
    if not seen.counts:
        return "No jobs."
    rows = []
    for queue, counts in _by_queue(seen.counts).items():
        capped = {count.state for count in counts if count.capped}
        shown = queue
        age = human(seen.ages.get(queue))
        for kind, (states, losses) in _by_kind(counts).items():
            figures = [f"{n}+" if n and s in capped else str(n) for s, n in states.items()]
            rows.append([shown, kind, *figures, str(losses), age])
            shown = age = ""  # said once per queue
    head = ["Queue", "Kind", "Ready", "Scheduled", "Claimed", "Running", "Parked"]
    text = table([*head, "Lost in broker", "Oldest ready"], rows, left=2)
    if any(count.capped for count in seen.counts):
        estimate = "" if seen.jobs_estimate is None else f"; about {seen.jobs_estimate} jobs in all"
        text += f"\n+ at least: counting stops at {gauges.CAP} rows per state{estimate}."
    return text


def _workers_text(workers: Sequence[WorkerStats]) -> str:
    if not workers:
        return "No workers. Start one: dramatiq vpay_tasks.actors"
    rows = [
        [
            worker.host,
            ", ".join(worker.queues),
            _state(worker),
            str(worker.pid),
            str(worker.threads),
            human(worker.pulse_age),
            human(worker.age),
        ]
        for worker in _in_order(workers)
    ]
    head = ["Worker on", "Queues", "State", "Pid", "Threads", "Last pulse", "Up for"]
    return table(head, rows, left=3)


def _counters_text(seen: Gauges) -> str:
    rows = [[name, str(value)] for name, value in sorted(seen.counters().items()) if value]
    return table(["Counted by these workers", "So far"], rows, left=1) if rows else ""


def _parked_text(seen: Gauges) -> str:
    reasons = _parked_by_reason(seen.counts)
    if not reasons:
        return ""
    rows = [[reason.value, advice(reason), str(jobs)] for reason, jobs in reasons]
    lines = [table(["Parked because", "What to do", "Jobs"], rows, left=2), ""]
    for job in seen.parked:
        lines.append(
            f"job {job.id}  {job.queue}/{job.kind}  {job.reason}, {human(job.age)} ago"
            + (f"  {job.dedupe_key}" if job.dedupe_key else "")
        )
        if job.error:
            lines.append(f"    {job.error}")
    if len(seen.parked) < sum(jobs for _, jobs in reasons):
        lines.append(f"(the latest {len(seen.parked)})")
    return "\n".join([*lines, "", "To run one again, in psql:", f"    {RUN_AGAIN}"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Columns two spaces apart: the first `left` flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def human(seconds: float | None) -> str:
    """A duration in the largest unit that keeps it above one; – for none."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _by_queue(counts: Sequence[StateCount]) -> dict[str, list[StateCount]]:
    grouped: dict[str, list[StateCount]] = defaultdict(list)
    for count in counts:
        grouped[count.queue].append(count)
    return dict(sorted(grouped.items()))


def _by_kind(counts: Sequence[StateCount]) -> dict[str, tuple[dict[str, int], int]]:
    """Per kind: jobs by state (all states, in order) and broker losses."""
    grouped: dict[str, tuple[dict[str, int], int]] = {}
    for count in sorted(counts, key=lambda c: c.kind):
        states, losses = grouped.get(count.kind, (dict.fromkeys(gauges.STATES, 0), 0))
        states[count.state] += count.jobs
        grouped[count.kind] = (states, losses + count.broker_losses)
    return grouped


def _parked_by_reason(counts: Sequence[StateCount]) -> list[tuple[DeadReason, int]]:
    found: Counter[DeadReason] = Counter()
    for count in counts:
        if count.reason is not None:
            found[DeadReason(count.reason)] += count.jobs
    return found.most_common()


def _in_order(workers: Sequence[WorkerStats]) -> list[WorkerStats]:
    return sorted(workers, key=lambda w: (not w.alive, w.host, w.queues, w.pid, w.id))


def _state(worker: WorkerStats) -> str:
    if not worker.alive:
        return "dead"
    return "draining" if worker.draining else "alive"


def _jobs(number: int) -> str:
    return "1 job is" if number == 1 else f"{number} jobs are"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
