"""Webhooks in. `on` declares what grants an event, `Inbox` takes deliveries, and `lane` is for
tasks of your own in the queue `inbox` that must take turns with the grants of a reference."""

from vpay_tasks.core.inbox import lane
from vpay_tasks.inbox.job import Event, InboxJob
from vpay_tasks.inbox.receive import Answer, Inbox
from vpay_tasks.inbox.registry import on

__all__ = ["Answer", "Event", "Inbox", "InboxJob", "lane", "on"]
