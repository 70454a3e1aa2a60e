"""Calls that may change a cache, from their request to their settled end."""
