"""Small decisions: when to retry, what to refuse."""
