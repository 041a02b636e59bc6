"""What the broker does for the data pipeline."""
