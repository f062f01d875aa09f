"""Tests of the way of tokens from a replica to the ingress, over real sockets."""
