"""An HTTP server that looks enough like a Kubernetes API for the real helm and kubectl to install, change and remove.

It is no cluster: nothing is scheduled, no controller acts, no admission but what `store.py` checks. It answers
discovery, reads, lists and watches, creates, updates, patches, deletes, and dry runs.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.helm.lookalike import patches, protobuf
from tests.helm.lookalike.store import RESOURCES, Json, Refused, Resource, Store

_OBJECT = re.compile(r"/(?:api/v1|apis/([^/]+)/[^/]+)/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(/status)?$")
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_PROTOBUF_SCHEMA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_WATCH_LIMIT_S = 20.0
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one segment: two would wait for each other's acknowledgement
    disable_nagle_algorithm = True
    store: Store

    def handle(self) -> None:
        """Clients may leave before they have read all; nobody needs to hear of it."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        address = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.command == "GET" and (known := _discovery(address.path)) is not None:
                self._answer(200, known)
            elif address.path == "/openapi/v2":
                self._bytes(200, b"", _PROTOBUF_SCHEMA)  # an empty message is an empty document
            else:
                self._object(address.path, body)
        except Refused as refused:
            self._answer(refused.status, _status(refused))

    def _object(self, path: str, body: bytes) -> None:
        found = _OBJECT.match(path)
        resource = next((r for r in RESOURCES if found and (found[1] or "", found[3]) == (r.group, r.plural)), None)
        if found is None or resource is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        namespace, name = found[2], found[4]
        if self.command == "GET" and name is None:
            self._list(resource, namespace)
        elif self.command == "GET":
            self._answer(200, self.store.get(resource, namespace, name))
        else:
            self._write(resource, namespace, name, body)

    def _write(self, resource: Resource, namespace: str, name: str | None, body: bytes) -> None:
        dry = "dryRun" in self.query
        if self.command == "DELETE":
            self._answer(200, self.store.delete(resource, namespace, str(name), dry=dry))
        elif self.command == "POST":
            self._answer(201, self.store.create(resource, namespace, self._read(body), dry=dry))
        elif self.command == "PUT":
            self._answer(200, self.store.update(resource, namespace, str(name), self._read(body), dry=dry))
        else:
            self._patch(resource, namespace, str(name), body, dry=dry)

    def _patch(self, resource: Resource, namespace: str, name: str, body: bytes, *, dry: bool) -> None:
        kind = self.headers["Content-Type"].partition("+")[0]
        change = yaml.safe_load(body)
        if kind == "application/apply-patch":
            self._apply(resource, namespace, name, change, dry=dry)
            return
        ways = {
            "application/merge-patch": patches.merge,
            "application/strategic-merge-patch": patches.strategic,
        }
        after = ways[kind](self.store.get(resource, namespace, name), change)
        self._answer(200, self.store.update(resource, namespace, name, after, dry=dry))

    def _apply(self, resource: Resource, namespace: str, name: str, config: Json, *, dry: bool) -> None:
        key = ((resource.plural, namespace, name), self.query.get("fieldManager", ""))
        try:
            before = self.store.get(resource, namespace, name)
        except Refused:
            done, status = self.store.create(resource, namespace, config, dry=dry), 201
        else:
            after = patches.applied(before, self.store.configs.get(key, {}), config)
            after["metadata"].pop("resourceVersion", None)
            done, status = self.store.update(resource, namespace, name, after, dry=dry), 200
        if not dry:
            self.store.configs[key] = config
        self._answer(status, done)

    def _read(self, body: bytes) -> Json:
        if "protobuf" in (self.headers.get("Content-Type") or ""):
            return protobuf.secret(body)
        loaded = json.loads(body)
        assert isinstance(loaded, dict)
        return loaded

    def _list(self, resource: Resource, namespace: str) -> None:
        if self.query.get("watch") in ("1", "true"):
            self._watch(resource, namespace)
            return
        items = [found for found in self.store.listed(resource, namespace) if self._selected(found)]
        version = {"resourceVersion": str(len(self.store.events))}
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        self._answer(200, head | {"metadata": version, "items": items})

    def _selected(self, found: Json) -> bool:
        labels = found["metadata"].get("labels", {})
        for part in filter(None, self.query.get("labelSelector", "").split(",")):
            name, value = re.split(r"==?", part, maxsplit=1)
            if labels.get(name) != value:
                return False
        wanted = re.search(r"metadata\.name=([^,]+)", self.query.get("fieldSelector", ""))
        return wanted is None or found["metadata"]["name"] == wanted[1]

    def _watch(self, resource: Resource, namespace: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        seen = int(self.query.get("resourceVersion") or 0)
        with contextlib.suppress(OSError):
            if self.query.get("sendInitialEvents") == "true":
                seen = self._initial(resource, namespace)
            for kind, found in self._events(seen):
                ours = found["kind"] == resource.kind and found["metadata"]["namespace"] == namespace
                if ours and self._selected(found):
                    self._event(kind, found)
            self._chunk(b"")

    def _initial(self, resource: Resource, namespace: str) -> int:
        """What exists already, as events, and the bookmark that says that this was all of it."""
        with self.store.changed:
            seen, known = len(self.store.events), self.store.listed(resource, namespace)
        for found in filter(self._selected, known):
            self._event("ADDED", found)
        end = {"resourceVersion": str(seen), "annotations": {"k8s.io/initial-events-end": "true"}}
        self._event("BOOKMARK", {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": end})
        return seen

    def _event(self, kind: str, found: Json) -> None:
        self._chunk(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def _events(self, seen: int) -> Iterator[tuple[str, Json]]:
        """Events after `seen`, as they come, until the watch is over."""
        while True:
            with self.store.changed:
                if len(self.store.events) <= seen and not self.store.changed.wait(_WATCH_LIMIT_S):
                    return
                new = self.store.events[seen:]
            yield from ((kind, found) for _, kind, found in new)
            seen += len(new)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _answer(self, status: int, body: Json) -> None:
        self._bytes(status, json.dumps(body).encode(), "application/json")

    def _bytes(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _status(refused: Refused) -> Json:
    failed = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return failed | {"message": str(refused), "reason": refused.reason, "code": refused.status}


def _discovery(path: str) -> Json | None:
    groups = sorted({(r.group, r.version) for r in RESOURCES if r.group})
    if path == "/version":
        return dict(VERSION)
    if path == "/openapi/v3":
        return {"paths": {}}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        entries = [
            {"name": group, "versions": [version], "preferredVersion": version}
            for group, version in ((g, {"groupVersion": f"{g}/{v}", "version": v}) for g, v in groups)
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}
    for group, version in [("", "v1"), *groups]:
        if path == (f"/apis/{group}/{version}" if group else "/api/v1"):
            return _resources(group, version)
    return None


def _resources(group: str, version: str) -> Json:
    known = [
        {"name": r.plural, "singularName": r.kind.lower(), "namespaced": True, "kind": r.kind, "verbs": _VERBS}
        for r in RESOURCES
        if (r.group, r.version) == (group, version)
    ]
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": known}


@contextlib.contextmanager
def serving(store: Store) -> Iterator[str]:
    """Serve `store` on a free loopback port for the block; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
