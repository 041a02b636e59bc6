"""Queuelake: an MQTT broker whose queues are durable, and whose queues are also tables."""

__version__ = "0.1.0"
