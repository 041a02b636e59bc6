"""One file for each kind of queue."""
