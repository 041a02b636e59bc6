"""Vehicle fan-out: one payload to many vehicles, one message in flight for each."""
