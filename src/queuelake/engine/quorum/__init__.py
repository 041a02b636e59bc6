"""The quorum queue: a machine which is equal on every replica, and its clients' halves."""
