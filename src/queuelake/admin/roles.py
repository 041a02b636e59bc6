"""What somebody must be to use a service: for whoever asks without a path of REST.

The rule is that of `auth.needed_role`, and a test compares the two over all routes. A service which
has no line here takes an admin: nothing is open because somebody forgot it.
"""

from __future__ import annotations

from typing import Final

from queuelake.apikey import Role

READING: Final = frozenset(
    {
        *("status", "metrics", "readiness", "settings"),
        *("clients", "client", "subscriptions", "retained", "retained_message"),
        *("queues", "queue", "queue_stats", "queue_consumers", "queue_messages", "dead_letters"),
        *("message_queues", "message_queue", "message_queue_stats", "message_queue_config"),
        "message_queue_messages",
        *("ecq_status", "ecq_config", "inspect_mailbox", "mailbox_owners", "mailbox_entries"),
        *("sdv_status", "inspect_vehicle", "fanout_requests", "fanout_request", "sdv_config"),
        *("jobs", "job", "archive_lag", "cluster"),
    }
)
CHANGING: Final = frozenset(
    {
        *("disconnect", "delete_retained"),
        *("configure_queue", "delete_queue", "purge_queue", "publish_message", "delete_group"),
        *("retry_dead_letter", "discard_dead_letter"),
        *("retry_dead_letters", "discard_dead_letters"),
        *("create_message_queue", "update_message_queue", "delete_message_queue"),
        *("configure_message_queues", "collect_message_queue_garbage"),
        *("rewind_mailbox", "collect_mailbox_garbage", "configure_ecq"),
        *("cancel_fanout_request", "collect_fanout_garbage", "configure_sdv"),
        "cancel_job",
    }
)


def role_for(service: str) -> Role:
    """The role which the method of this name of `Services` takes."""
    if service in READING:
        return "viewer"
    return "operator" if service in CHANGING else "admin"
