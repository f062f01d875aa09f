"""What the commands over the admin API ask and print."""

from __future__ import annotations

import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
from rich.console import Console

from router.console import RouterClient, ms, or_dash, print_json, table_of
from router.reach import opened
from shared.errors import BackendUnreachable
from shared.openai.sse import EventCutter

_SILENCE_S = 40
"""A stream that says nothing for this long is gone: comments come every 15 seconds."""


class AdminClient(RouterClient):
    """Asks the admin API of one router."""

    def decisions(self, wanted: dict[str, str | None], limit: int) -> list[dict[str, Any]]:
        """The newest decisions that are wanted, newest first."""
        query = urllib.parse.urlencode({name: value for name, value in wanted.items() if value} | {"limit": limit})
        return list(self._ask(f"/admin/v1/decisions?{query}", None, holds="decisions")["decisions"])

    def drain(self, backend_id: str) -> None:
        """Take a backend out of service."""
        self._ask(_drain_of(backend_id), None, method="PUT")

    def resume(self, backend_id: str) -> None:
        """Use it again."""
        self._ask(_drain_of(backend_id), None, method="DELETE")

    def follow(self) -> Iterator[dict[str, Any]]:
        """Each decision as it comes.

        Raises:
            BackendUnreachable: the router is gone, or refuses.
        """
        asked = urllib.request.Request(self._base_url + "/admin/v1/events", headers=self._headers)  # noqa: S310 - the scheme was checked
        cutter = EventCutter()
        try:
            with opened(asked, timeout_s=_SILENCE_S, tls=self._tls) as stream:
                while chunk := stream.read1(65536):
                    for event in cutter.feed(chunk):
                        if event.startswith(b"event: decision\n"):
                            yield orjson.loads(event.partition(b"data: ")[2])
        except OSError:
            raise BackendUnreachable(f"The router at {self._base_url} told no more.") from None


def show_decisions(
    client: AdminClient, wanted: dict[str, str | None], limit: int, *, follow: bool, as_json: bool
) -> None:
    """One row a decision, oldest first; with `follow`, each new one as it comes."""
    found = client.decisions(wanted, limit)[::-1]
    console = Console()
    if as_json:
        for each in found:
            print_json(each)
    else:
        table = table_of("time", "class", "tier", "outcome", "ttft", "reason")
        for each in found:
            table.add_row(*_cells(each))
        console.print(table if found else "No decision is like that.")
    for each in client.follow() if follow else ():
        if any(value and value not in (each.get(name), each.get("code")) for name, value in wanted.items()):
            continue
        if as_json:
            print_json(each)
        else:
            console.print("  ".join(_cells(each)), markup=False, highlight=False)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    time = datetime.fromtimestamp(row["at"]).astimezone().strftime("%H:%M:%S")
    reason = or_dash(row["reason"] or row["code"]) + (f" ({row['rule']})" if row["rule"] else "")
    return (time, or_dash(row["class"]), or_dash(row["tier"]), row["outcome"], ms(row["ttft_ms"]), reason)


def _drain_of(backend_id: str) -> str:
    return f"/admin/v1/backends/{urllib.parse.quote(backend_id, safe='')}/drain"
