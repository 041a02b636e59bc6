"""A client of a cluster with several shards: one connection in front, one to each shard behind."""
