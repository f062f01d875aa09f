"""Keeps the servers between Serve replicas on loopback, for a cluster of one machine.

Ray Serve binds the server through which replicas call each other to every address of the machine, and what it reads
there it unpickles, without authentication. In a pod the network policy stands before it; on a laptop nothing does.
Internal to Ray, like all of `cloud.rayllm`, but needed where that module is too heavy to load.
"""

from __future__ import annotations

import importlib
from typing import Any

LOOPBACK = "127.0.0.1"
_ANY = "[::]"


def keep_replica_on_loopback() -> None:
    """Let this replica's own server, which starts after its constructor, listen on loopback alone."""
    replica: Any = importlib.import_module("ray.serve._private.replica")
    add_port: Any = replica.add_port_to_grpc_server

    def add_loopback_port(server: Any, address: str) -> Any:
        return add_port(server, address.replace(_ANY, LOOPBACK))

    replica.add_port_to_grpc_server = add_loopback_port
