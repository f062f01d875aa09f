"""`isthmus edge plan`: what a model would get on this device or another, and the plan held against the real engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge.settings import EdgeSettings
from shared.settings import load

if TYPE_CHECKING:
    from edge.devices.profile import DeviceProfile
    from edge.memory.capacity import CapacityPlan
    from edge.packages.outline import Outline
    from edge.runtime.plan import PlanRequest

app = typer.Typer()


@app.command()
def plan(
    model: Annotated[
        str | None,
        typer.Argument(help="Installed package, or a GGUF file (its header suffices); default: edge.model."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory to plan with, such as 8GiB; default: what is free.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Requests that run side by side.")] = None,
    context: Annotated[int | None, typer.Option(help="Context of a slot in tokens; default: what fits.")] = None,
    kv_type: Annotated[str | None, typer.Option(help="Type of the KV cache: f16, q8_0 or q4_0.")] = None,
    draft: Annotated[str | None, typer.Option(help="Draft model for speculation: package or file.")] = None,
    adapters: Annotated[int, typer.Option(help="LoRA adapters to keep room for.")] = 0,
    adapter_rank: Annotated[int, typer.Option(min=1, max=1024, help="Rank of each adapter.")] = 16,
    profile: Annotated[
        Path | None, typer.Option(help="Another device: a shipped profile, or a YAML file that describes it.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Start the real engine for a grid of plans and compare; takes minutes.")
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Show context and memory that a model would be served with: three red lines, capacity, loading."""
    from edge import fixed_plan, plan_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.planning import plan_request  # noqa: PLC0415
    from edge.runtime.outlook import Wish, outlook  # noqa: PLC0415

    wanted = {"kv_type": kv_type} if kv_type else None
    settings = load(EdgeSettings, "edge", config, slots=slots, context_tokens=context, memory=wanted)
    name = model or settings.model
    if (package := fixed_plan.fixed_package(settings, name)) is not None:
        unusable = {"measure": measure, "draft": draft, "adapters": adapters, "profile": profile}
        fixed_plan.show(settings, package, memory, unusable, as_json=as_json)
        return 0
    if measure:
        return plan_console.measure(settings, name, as_json=as_json)
    request, device = plan_request(settings), _device(memory, profile)
    wish = Wish(
        request=request,
        draft=None if draft is None else _outline(settings, draft),
        adapters=adapters,
        adapter_rank=adapter_rank,
    )
    planned = None if _is_file(name) else _planned(settings, name, device, request)
    plan_console.show(outlook(_outline(settings, name), device, wish, planned=planned), as_json=as_json)
    return 0


def _is_file(model: str) -> bool:
    return "/" in model or model.endswith(".gguf")


def _planned(settings: EdgeSettings, name: str, device: DeviceProfile, request: PlanRequest) -> CapacityPlan | None:
    """The plan of an installed package whose engine has an arithmetic of its own; None for the others."""
    from edge import console  # noqa: PLC0415 - as above
    from edge.devices.probe import probe  # noqa: PLC0415
    from edge.runtime.kinds import plan_package  # noqa: PLC0415

    package = console.library(settings).show(name)
    if package.manifest.model.format == "gguf":
        return None
    return plan_package(package, replace(probe(), memory_available_bytes=device.memory.available), request).capacity


def _outline(settings: EdgeSettings, model: str) -> Outline:
    from edge import console  # noqa: PLC0415 - as above
    from edge.packages.outline import outline_of_file, outline_of_package  # noqa: PLC0415

    if _is_file(model):
        return outline_of_file(Path(model))
    return outline_of_package(console.library(settings).show(model))


def _device(memory: str | None, profile: Path | None) -> DeviceProfile:
    from edge.devices.probe import probe  # noqa: PLC0415 - as above
    from edge.devices.profile import find_profile, profile_of, with_memory  # noqa: PLC0415

    device = profile_of(probe()) if profile is None else find_profile(str(profile))
    return device if memory is None else with_memory(device, memory)
