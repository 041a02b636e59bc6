"""Where promises are kept: a contract, an in-memory reference, and LMDB."""
