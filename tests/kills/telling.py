"""The matrix where somebody is told: fan-out, delivery, a vendor's event."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.kills.driver import Point, Way
from tests.kills.places import HalfOfAPost, Post
from tests.kills.plays import Payment, Vendor
from tests.kills.terms import (
    AGAIN,
    BESIDE,
    COMMITTED,
    COMMITTING,
    CUT,
    ERROR,
    GONE,
    KILL,
    LATE,
    RETRIED,
    STOP,
    STRAIGHT,
    WRITTEN,
    at,
)
from tests.kills.world import KIOSK


def fan_out(rows: str, *seen: str) -> Way:
    expires = "fan_out_events" if "expired" in rows else ""
    rows_of = {"fan_out_events": rows, "deliver_webhook": BESIDE}
    # A delivery whose worker dies between its POST and the record is posted once more.
    return Way(rows_of, seen, posts=None, expires=expires)


F_GONE, F_RETRIED = (f"claim start {word} claim start again" for word in ("worker_gone", "retry"))
F_LATE = "claim start run_expired claim( claim_expired claim)* start again"

FAN_OUT: Final = (
    Point(
        "fan_out_event_flipped",
        Payment,
        at("events", "flipped", WRITTEN),
        {
            KILL: fan_out(F_GONE),
            STOP: fan_out(F_LATE, "settle_lost"),
            CUT: fan_out(F_RETRIED, "+job_failures"),
            ERROR: fan_out(F_RETRIED, "+job_failures"),
        },
    ),
    Point(
        "fan_out_committing",
        Payment,
        at("webhook_deliveries", "written", COMMITTING),
        {
            KILL: fan_out(F_GONE),
            STOP: fan_out(F_LATE, "settle_lost"),
            CUT: fan_out(F_RETRIED, "+job_failures"),
            ERROR: fan_out(F_RETRIED, "+job_failures"),
        },
    ),
    Point(
        "fan_out_committed",
        Payment,
        at("webhook_deliveries", "written", COMMITTED),
        {
            KILL: fan_out(F_GONE),
            STOP: fan_out(F_LATE, "settle_lost"),
            CUT: fan_out(F_RETRIED, "+job_failures"),
        },
    ),
)


at_a_kiosk = partial(Payment, merchant=KIOSK)
"""It has one endpoint, so that nobody else's delivery is on the way."""


def delivery(rows: str, *seen: str, posts: int = 1, outlives: bool = False) -> Way:
    expires = "deliver_webhook" if "expired" in rows else ""
    return Way({"deliver_webhook": rows}, seen, posts=posts, expires=expires, outlives=outlives)


NOT_LOST: Final = ("settle_ambiguous", "!settle_lost", "!+ambiguous_unknown")
"""Its commit was read again, and found, or found not to have been."""

SETTLE: Final = (
    Point(
        "again_settle_written",
        Payment,
        at("fan_out_events", "again", WRITTEN),
        {
            KILL: fan_out(F_GONE),
            STOP: fan_out("claim start again claim start again"),
            CUT: fan_out("claim start again claim start again", *NOT_LOST),
            ERROR: fan_out("claim start again claim start again", "a settle could not run"),
        },
    ),
    Point(
        "again_settle_committed",
        Payment,
        at("fan_out_events", "again", COMMITTED),
        {
            KILL: fan_out("claim start again claim start again"),
            CUT: fan_out("claim start again claim start again", *NOT_LOST),
        },
    ),
)

DELIVERY: Final = (
    Point(
        "digest_stamped",
        at_a_kiosk,
        at("webhook_deliveries", "stamped", WRITTEN),
        {
            KILL: delivery(GONE),
            STOP: delivery(LATE, "settle_lost", outlives=True),
            CUT: delivery(RETRIED, "+job_failures"),
            ERROR: delivery(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "post_before_connecting",
        at_a_kiosk,
        at("webhook_deliveries", "stamped", COMMITTED),
        {
            KILL: delivery(GONE),
            STOP: delivery(LATE, "settle_lost", outlives=True),
            CUT: delivery(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "post_half_sent",
        at_a_kiosk,
        HalfOfAPost,
        {
            KILL: delivery(GONE),
            STOP: delivery(LATE, "settle_lost", posts=2),
            CUT: delivery(AGAIN),
        },
    ),
    Point(
        "post_answer_under_way",
        at_a_kiosk,
        Post,
        {
            KILL: delivery(GONE, posts=2),
            STOP: delivery(LATE, "settle_lost", posts=2),
            CUT: delivery(AGAIN, posts=2),
            ERROR: delivery(AGAIN, posts=2),
        },
    ),
    Point(
        "record_written",
        at_a_kiosk,
        at("webhook_deliveries", "recorded", WRITTEN),
        {
            KILL: delivery(GONE, posts=2),
            STOP: delivery(LATE, "settle_lost"),
            CUT: delivery(RETRIED, "+job_failures", posts=2),
            ERROR: delivery(RETRIED, "+job_failures", posts=2),
        },
    ),
    Point(
        "record_committed",
        at_a_kiosk,
        at("webhook_deliveries", "recorded", COMMITTED),
        {
            KILL: delivery(GONE),
            STOP: delivery(LATE, "settle_lost"),
            CUT: delivery(RETRIED, "+job_failures"),
        },
    ),
    Point(
        "jobs_settle_written",
        at_a_kiosk,
        at("deliver_webhook", "end", WRITTEN),
        {
            KILL: delivery(GONE),
            STOP: delivery(STRAIGHT),
            CUT: delivery(STRAIGHT, *NOT_LOST),
            ERROR: delivery(STRAIGHT, "a settle could not run"),
        },
    ),
    Point(
        "jobs_settle_committed",
        at_a_kiosk,
        at("deliver_webhook", "end", COMMITTED),
        {
            KILL: delivery(STRAIGHT),
            STOP: delivery(STRAIGHT),
            CUT: delivery(STRAIGHT, *NOT_LOST),
        },
    ),
)


def grant(rows: str, *seen: str) -> Way:
    return Way({"grant_inbox": rows}, seen, expires="grant_inbox" if "expired" in rows else "")


INBOX: Final = (
    Point(
        "vendors_event_kept_written",
        Vendor,
        at("inbox_events", "kept", WRITTEN),
        {
            KILL: grant(STRAIGHT, "told None"),
            STOP: grant(STRAIGHT),
            CUT: grant(STRAIGHT, "told 503"),
            ERROR: grant(STRAIGHT, "told 503"),
        },
    ),
    Point(
        "vendors_event_kept_committing",
        Vendor,
        at("inbox_events", "kept", COMMITTING),
        {
            KILL: grant(STRAIGHT, "told None"),
            STOP: grant(STRAIGHT),
            CUT: grant(STRAIGHT, "told 503"),
            ERROR: grant(STRAIGHT, "told 503"),
        },
    ),
    Point(
        "vendors_event_kept_committed",
        Vendor,
        at("inbox_events", "kept", COMMITTED),
        {
            KILL: grant(STRAIGHT, "told None"),
            STOP: grant(STRAIGHT),
            CUT: grant(STRAIGHT, "told 503"),
        },
    ),
    Point(
        "grant_written",
        Vendor,
        at("inbox_events", "done", WRITTEN),
        {
            KILL: grant(GONE),
            STOP: grant(LATE, "+settles_lost"),
            CUT: grant(AGAIN, "+settles_ambiguous", "inbox_failed"),
            ERROR: grant(AGAIN, "inbox_failed"),
        },
    ),
    Point(
        "grant_committed",
        Vendor,
        at("inbox_events", "done", COMMITTED),
        {KILL: grant(STRAIGHT), STOP: grant(STRAIGHT), CUT: grant(STRAIGHT, "+settles_ambiguous")},
    ),
)
