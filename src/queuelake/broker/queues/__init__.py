"""Durable queues in the broker: machines of the engine, hosted."""
