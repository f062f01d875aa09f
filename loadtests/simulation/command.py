"""`isthmus loadtest simulate`: what policies would do to a fleet over a day."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from shared.errors import SettingsError

if TYPE_CHECKING:
    from loadtests.simulation.day import Plan
    from router.policy.model import Policy

_DEFAULT = ("default", "fastest", "prefer_cloud", "only_edge")
_Of = Callable[[dict[str, Any]], str]
_ROWS: tuple[tuple[str, _Of], ...] = (
    ("answered by the edge", lambda each: _percent(each["edge_share"])),
    ("refused", lambda each: _percent(each["refused_share"])),
    ("first text within 2 s, 150 ms a token", lambda each: _percent(each["within_objective_share"])),
    ("first text p50, ms", lambda each: _figure(each["ttft_ms"]["p50"])),
    ("first text p95, ms", lambda each: _figure(each["ttft_ms"]["p95"])),
    ("first text p99, ms", lambda each: _figure(each["ttft_ms"]["p99"])),
    ("whole answer p50, ms", lambda each: _figure(each["total_ms"]["p50"])),
    ("whole answer p95, ms", lambda each: _figure(each["total_ms"]["p95"])),
    ("personal: kept on the edge", lambda each: str(each["privacy"]["kept_on_edge"])),
    ("personal: refused", lambda each: str(each["privacy"]["refused"])),
    ("personal: sent to the cloud", lambda each: str(each["privacy"]["sent_to_cloud"])),
    ("throttle events", lambda each: str(each["throttle_events"])),
    ("changes of tier", lambda each: str(each["tier_switches"])),
    ("cloud, replica hours", lambda each: _figure(each["cloud_replica_hours"])),
    ("cloud, money", lambda each: _figure(each["cloud_money"])),
    ("edge, kWh", lambda each: _figure(each["edge_kwh"])),
    ("situations decided", lambda each: str(each["decisions"])),
)


def simulate(
    devices: Annotated[int, typer.Option(min=1, max=1_000_000, help="Devices.")] = 10_000,
    day: Annotated[bool, typer.Option("--day", help="A whole day; the same as --hours 24.")] = False,
    hours: Annotated[float | None, typer.Option(min=0.02, max=168, help="Hours from midnight on.")] = None,
    per_day: Annotated[float, typer.Option(min=0, max=1_000, help="Requests of a device and day.")] = 20.0,
    step_s: Annotated[float, typer.Option(min=1, max=600, help="Length of a step of heat and cloud, seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same devices and requests.")] = 1,
    policy: Annotated[
        list[str] | None, typer.Option(help="default, fastest, prefer_cloud, only_edge, or a policy file; repeat it.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option(help="Variants of the default, such as slo.ttft_ms=1000,2000,4000.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Policies at the same time; unset: one a core.")] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Ray cluster that the policies are spread over: local, auto or host:port."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Play a day of a fleet of devices under several policies, decided on by the router's own code.

    Every policy gets the same devices and the same requests. Prints cost, energy, times, who answered, what became of
    personal data, and how often devices were throttled.
    """
    from loadtests.simulation.day import Plan  # noqa: PLC0415 - loads numpy
    from loadtests.simulation.policies import named, varied  # noqa: PLC0415

    plan = Plan(devices=devices, hours=_hours(day, hours, step_s), step_s=step_s, per_day=per_day, seed=seed)
    policies = {name: named(name) for name in policy or (() if vary else _DEFAULT)}
    for text in vary or ():
        policies |= varied(text)
    began_s = time.monotonic()
    results = _results(plan, policies, processes, ray)
    took_s = round(time.monotonic() - began_s, 1)
    if as_json:
        facts = {"devices": devices, "hours": plan.hours, "per_day": per_day, "step_s": step_s, "seed": seed}
        result = {"plan": facts, "took_s": took_s, "policies": results}
        typer.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
        return
    _show(plan, results, took_s)


def _hours(day: bool, hours: float | None, step_s: float) -> float:
    if day and hours not in (None, 24):
        raise SettingsError("--day is 24 hours: say one of --day and --hours.", param="--hours")
    if hours is not None and step_s > hours * 3600:
        raise SettingsError("--step-s is longer than the time that is simulated.", param="--step-s")
    return 24.0 if day or hours is None else hours


def _results(
    plan: Plan, policies: dict[str, Policy], processes: int | None, ray: str | None
) -> dict[str, dict[str, Any]]:
    if ray is None:
        return play(plan, policies, processes or os.cpu_count() or 1)
    from loadtests.simulation.spread import play_on_ray  # noqa: PLC0415 - Ray takes seconds to load

    return play_on_ray(plan, policies, ray)


def play(plan: Plan, policies: dict[str, Policy], processes: int) -> dict[str, dict[str, Any]]:
    """The day under each policy, in as many processes as there are policies and cores."""
    if min(processes, len(policies)) <= 1:
        return {name: day_of(plan, policy) for name, policy in policies.items()}
    with ProcessPoolExecutor(max_workers=min(processes, len(policies))) as pool:
        running = {name: pool.submit(day_of, plan, policy) for name, policy in policies.items()}
        return {name: future.result() for name, future in running.items()}


def day_of(plan: Plan, policy: Policy) -> dict[str, Any]:
    """One policy's day; a process of its own can run it."""
    from loadtests.simulation.day import Day  # noqa: PLC0415

    return Day(plan, policy).run()


def _show(plan: Plan, results: dict[str, dict[str, Any]], took_s: float) -> None:
    requests = next(iter(results.values()))["requests"]
    table = Table(title=f"{plan.devices} devices, {plan.hours:g} hours, {requests} requests")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    for title, of in _ROWS:
        table.add_row(title, *(of(each) for each in results.values()))
    console = Console()
    console.print(table)
    console.print(f"simulated in {took_s} s", highlight=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
