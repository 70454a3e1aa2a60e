"""One attachment to one life of the service, and what keeps a session attached."""
