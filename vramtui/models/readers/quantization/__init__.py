"""What a config says of quantised weights."""
