"""One node of a cluster: a copy of the store, a broker while it owns it, a way to the owner."""
