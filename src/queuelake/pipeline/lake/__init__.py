"""Queues as Delta tables: what they look like, how files get into them, who may change them."""
