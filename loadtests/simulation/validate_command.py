"""`isthmus loadtest validate RUN`: whether the simulator would have foretold a real load test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from shared.settings import load

if TYPE_CHECKING:
    from loadtests.simulation.validation import Validation

MISSED = 1


def validate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an open loop (--rate) without faults.")],
    policy: Annotated[
        Path | None, typer.Option(help="Policy file that was in force; unset: the one of the router's settings.")
    ] = None,
    learn_ratio: Annotated[
        float, typer.Option(min=0.1, max=0.9, help="Share of the run from which the speed of the tiers is learnt.")
    ] = 0.5,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML) of the tested router.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> int:
    """Hold the simulator against a real run: learn from its first half, predict the second.

    Both get the same requests at the same moments. Compared are the edge's share and the median time to the first
    token; exits with 1 when one of them is more than 20 % off.
    """
    from loadtests.report.folder import read_run  # noqa: PLC0415 - what only this command needs
    from loadtests.simulation.validation import validate as held  # noqa: PLC0415
    from router.policy_console import open_policy  # noqa: PLC0415
    from router.settings import RouterSettings  # noqa: PLC0415

    report, rows = read_run(run)
    settings = load(RouterSettings, "router", config)
    _, in_force = open_policy(policy or settings.policy.file, settings, keys_known=config is not None)
    found = held(report, rows, in_force, learn_ratio=learn_ratio)
    if as_json:
        typer.echo(orjson.dumps(_plain(found), option=orjson.OPT_INDENT_2).decode())
    else:
        _show(found, Console())
    return 0 if found.holds else MISSED


def _plain(found: Validation) -> dict[str, Any]:
    model = found.cloud.model
    return {
        "learnt_from": found.learnt_from,
        "predicted": found.predicted,
        "holds": found.holds,
        "figures": [
            {
                "figure": each.figure,
                "real": each.real,
                "simulated": each.simulated,
                "off_ratio": round(each.off_ratio, 4),
                "holds": each.holds,
            }
            for each in found.figures
        ],
        "edge": {
            "base_ms": round(found.edge.base_ms, 1),
            "prefill_tokens_per_s": round(found.edge.prefill_tokens_per_s, 1),
            "decode_tokens_per_s": round(found.edge.decode_tokens_per_s, 1),
        },
        "cloud": {
            "base_ms": round(model.base_ms, 1),
            "prefill_tokens_per_s": round(model.prefill_tokens_per_s, 1),
            "decode_tokens_per_s": round(model.decode_tokens_per_s, 1),
            "slowdown_of_32_streams": round(model.full_slowdown, 3),
            "first_token_slowdown_of_32_streams": round(model.full_first_slowdown, 3),
        },
    }


def _show(found: Validation, console: Console) -> None:
    table = Table(title=f"{found.predicted} answers predicted, learnt from {found.learnt_from} before them")
    for name in ("figure", "real", "simulated", "off", "within 20 %"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for each in found.figures:
        table.add_row(
            each.figure,
            f"{each.real:g}",
            f"{each.simulated:g}",
            f"{each.off_ratio:.0%}",
            "yes" if each.holds else "no",
        )
    console.print(table)
    edge, cloud = found.edge, found.cloud.model
    console.print(
        f"edge: {edge.base_ms:.0f} ms, {edge.prefill_tokens_per_s:.0f} and {edge.decode_tokens_per_s:.0f} tokens/s; "
        f"cloud: {cloud.base_ms:.0f} ms, {cloud.prefill_tokens_per_s:.0f} and {cloud.decode_tokens_per_s:.0f} tokens/s",
        highlight=False,
    )
