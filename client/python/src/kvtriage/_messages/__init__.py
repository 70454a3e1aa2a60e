"""Between the public classes and the messages of proto/kvtriage/v1."""
