"""A played `isthmus`: serves, prepares, crashes, refuses and leaves strays behind as files in its home tell it to.

Run as a program by the launcher's tests. `HOME/<tier>.<behaviour>` files choose: `fail` (end with an error line),
`mute` (never ready), `crash` (end once after being ready; the file is removed), `stray` (start a process in a
session of its own, as Ray does), `deaf` (ignore SIGTERM), `broken-pull` (preparing fails). Certificates in its settings
make it speak TLS.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOME = Path(os.environ["ISTHMUS_HOME"])


def _told(tier: str, behaviour: str) -> bool:
    return (HOME / f"{tier}.{behaviour}").exists()


class _Handler(BaseHTTPRequestHandler):
    tier = ""

    def do_GET(self) -> None:
        status, body = 404, b"{}"
        if self.path == "/readyz" and not _told(self.tier, "mute"):
            status = 200
        elif self.path == "/ops/capacity":
            state = "starting" if _told(self.tier, "mute") else "ready"
            status, body = 200, json.dumps({"models": [{"model_id": "m", "state": state}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _serve(tier: str, port: int) -> None:
    print(json.dumps({"event": "listening", "level": "info", "component": tier, "port": port}), file=sys.stderr)
    (HOME / f"{tier}.env").write_text(json.dumps(dict(os.environ)))
    if _told(tier, "stray"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if _told(tier, "deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"tier": tier}))
    if certificate := os.environ.get(f"ISTHMUS__{tier.upper()}__TLS__CERT_FILE"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, os.environ[f"ISTHMUS__{tier.upper()}__TLS__KEY_FILE"])
        if authority := os.environ.get(f"ISTHMUS__{tier.upper()}__TLS__CLIENT_CA_FILE"):
            context.load_verify_locations(authority)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not _told(tier, "crash"):
        time.sleep(0.02)
    (HOME / f"{tier}.crash").unlink()
    os._exit(9)


def _pull() -> None:
    if _told("edge", "broken-pull"):
        print("error: The download was interrupted after 12 of 98 MB.", file=sys.stderr)
        sys.exit(1)
    made = HOME / "models" / "smollm2-135m-instruct"
    made.mkdir(parents=True)
    (made / "current").write_text("1")


def main() -> None:
    tier, verb = sys.argv[1:3]
    with (HOME / "calls").open("a") as calls:
        calls.write(f"{tier} {verb}\n")
    if verb == "serve":
        if _told(tier, "fail"):
            print("some noise\nerror: Setting edge.slots: too many.", file=sys.stderr)
            sys.exit(2)
        _serve(tier, int(os.environ[f"ISTHMUS__{tier.upper()}__PORT"]))
    elif verb == "pull":
        _pull()


main()
