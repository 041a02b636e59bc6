"""The Python SDK: `Client` for asyncio; `queuelake.client.blocking` has the same without it."""

from queuelake.client.client import Client, ClientOptions
from queuelake.client.delivery import Delivery
from queuelake.client.errors import (
    ClientClosedError,
    ConfirmTimeoutError,
    MessageTooLargeError,
    QueueFullError,
    RequestTimeoutError,
    SessionTakenOverError,
)
from queuelake.client.message import Message, QueueMessage
from queuelake.client.queue import ConsumeOptions, PublishOptions, Queue
from queuelake.client.subscription import Subscription

__all__ = [
    "Client",
    "ClientClosedError",
    "ClientOptions",
    "ConfirmTimeoutError",
    "ConsumeOptions",
    "Delivery",
    "Message",
    "MessageTooLargeError",
    "PublishOptions",
    "Queue",
    "QueueFullError",
    "QueueMessage",
    "RequestTimeoutError",
    "SessionTakenOverError",
    "Subscription",
]
