"""Message queues in the broker: filled from topics, one dispatcher for each."""
