"""Several processes that serve one port: they share state, limits, the audit log and metrics through their parent."""
