"""Client of the kvtriage sidecar."""
