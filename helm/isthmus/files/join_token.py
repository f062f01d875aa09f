"""Makes the key with which edge agents report to the router, once, and keeps it: the Job before install and upgrade.

Arguments: address of the Kubernetes API, folder of the ServiceAccount, name of the Secret, and the file or the JSON
list of the keys that the operator gave. The Secret holds `token` for the agents, and `keys.json`: the operator's keys
and the hash of this one, which the router reads. The token itself is never printed.
"""

import base64
import hashlib
import json
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NAME = "edge-join"
PREFIX = "isk-"
LIMIT_S = 30


def main(server: str, account: str, secret: str, keys: str) -> str:
    """What was done, in one line."""
    try:
        given = json.loads(keys if keys.startswith("[") else Path(keys).read_text("utf-8"))
        taken = any(key["name"] == NAME for key in given)
    except (ValueError, KeyError, TypeError):
        sys.exit("The keys are not a JSON list of objects with name, sha256 and scopes.")
    if taken:
        sys.exit(f"The keys already have one called {NAME}: that name belongs to the join token.")
    api = Api(server, Path(account))
    known = api.read(secret)
    token = base64.b64decode(known["data"]["token"]).decode() if known else PREFIX + secrets.token_urlsafe(32)
    data = {"token": token, "keys.json": json.dumps([*given, entry(token)])}
    api.write(secret, known, {name: base64.b64encode(text.encode()).decode() for name, text in data.items()})
    return f"Secret {secret} {'keeps its token' if known else 'has a new token'}; {len(given)} other keys."


def entry(token: str) -> dict[str, Any]:
    """The token in the router's list of keys: by its hash, and good for reports alone."""
    return {"name": NAME, "sha256": hashlib.sha256(token.encode()).hexdigest(), "scopes": ["fleet:report"]}


class Api:
    """Secrets of this pod's namespace, as the pod's ServiceAccount."""

    def __init__(self, server: str, account: Path) -> None:
        namespace = (account / "namespace").read_text("utf-8").strip()
        self._secrets = f"{server}/api/v1/namespaces/{namespace}/secrets"
        self._token = (account / "token").read_text("utf-8").strip()
        trusted = server.startswith("https:")
        self._context = ssl.create_default_context(cafile=str(account / "ca.crt")) if trusted else None

    def read(self, name: str) -> dict[str, Any] | None:
        """The Secret, or None."""
        return self._call("GET", f"{self._secrets}/{name}")

    def write(self, name: str, known: dict[str, Any] | None, data: dict[str, str]) -> None:
        """Make the Secret, or replace the one that was read; one that changed meanwhile makes this fail."""
        metadata = known["metadata"] if known else {"name": name}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        address = f"{self._secrets}/{name}" if known else self._secrets
        if self._call("PUT" if known else "POST", address, body) is None:
            sys.exit(f"Secret {name} disappeared while it was written.")

    def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S, context=self._context) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                return sys.exit(f"The Kubernetes API answered {error.code} to {method} of the Secret.")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]) + "\n")
