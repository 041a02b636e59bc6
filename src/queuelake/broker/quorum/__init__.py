"""Quorum queues in the broker: their hosts, their consumers, their rows."""
