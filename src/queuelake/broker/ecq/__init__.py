"""Device mailboxes (exclusive compacted queues) in the broker."""
