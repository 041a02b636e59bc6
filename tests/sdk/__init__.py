"""The SDK against a real broker."""
