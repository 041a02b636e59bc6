"""Queues as machines: commands in, effects out; no clock, no dice, no I/O."""
