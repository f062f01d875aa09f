"""The way of tokens from a replica to the ingress: a connection between the two, beside the call that Serve routes."""
