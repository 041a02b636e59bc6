"""What `queuelake apply` does: a document and a broker become a list of changes."""
