"""Access control: who a client is (`authenticator`) and what it may do (`acl`)."""
