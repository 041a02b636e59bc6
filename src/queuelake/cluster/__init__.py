"""Several nodes as one broker: a replicated log of commit groups, one owner, clients anywhere."""
