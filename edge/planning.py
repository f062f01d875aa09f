"""Decides how the model of the settings is started here: memory, draft, offload, and what was measured here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.adapter_service import adapters_bytes
from edge.custody import package_to_serve
from edge.devices.probe import DeviceFacts, probe
from edge.devices.runtimes import LLAMA_CPP, ask_runtime
from edge.devices.unit import UnitKind
from edge.memory.kv import KvType
from edge.packages.package import Package
from edge.runtime.drafting import Drafting, drafting
from edge.runtime.forecast import applied, measurements_dir
from edge.runtime.kinds import plan_package
from edge.runtime.offload import offloaded
from edge.runtime.plan import PlanRequest, StaticPlan
from edge.settings import EdgeSettings
from edge.tuning import TuningJob, is_open, known, tuned
from shared import logs
from shared.errors import NotFound, TrustError

_log = logs.get("edge")


@dataclass(frozen=True, slots=True)
class Prepared:
    """How the engine is started, and what there is to measure for it: None where all is known or nothing is open."""

    plan: StaticPlan
    tuning_known: bool
    tuning_job: TuningJob | None


def plan_for(settings: EdgeSettings) -> StaticPlan:
    """The engine's plan alone; see `prepare`."""
    return prepare(settings).plan


def prepare(settings: EdgeSettings) -> Prepared:
    """The engine's plan for the model in `settings` on this machine. It blocks.

    Raises:
        NotFound: the model, or its draft, is not installed.
        TrustError: files of a package are not as stated, or nobody who is trusted vouches for it.
        SettingsError: memory, a profile or an option does not allow it.
    """
    package, device = package_to_serve(settings, unvouched), probe()
    request = request_for(settings, package)
    request = replace(
        request,
        adapters_bytes=adapters_bytes(settings, package.digest, unvouched),
        drafting=_drafting(settings, package),
    )
    found = known(request, package, device, measurements_dir())
    plan = plan_package(package, device, started(request, package, device))
    wanted = settings.engine.tune and found is None
    return Prepared(plan, found is not None, _job(settings, request, plan, device) if wanted else None)


def tuning_job(settings: EdgeSettings) -> TuningJob | None:
    """What measures threads and batch for the model in `settings`; None where nothing is open. Raises as `prepare`."""
    package, device = package_to_serve(settings, unvouched), probe()
    request = plan_request(settings)
    return _job(settings, request, plan_package(package, device, request), device)


def _job(settings: EdgeSettings, request: PlanRequest, plan: StaticPlan, device: DeviceFacts) -> TuningJob | None:
    if not is_open(request, plan.package):
        return None
    return TuningJob(request, plan, device, measurements_dir(), settings.engine_dir)


def request_for(settings: EdgeSettings, package: Package) -> PlanRequest:
    """What the settings ask, with what follows from the profile that they name."""
    request, profile = plan_request(settings), settings.engine.profile
    if profile is None or package.manifest.model.format != "gguf":
        return request
    report = ask_runtime(LLAMA_CPP)
    devices = [unit.name for unit in report.units if unit.kind is UnitKind.GPU]
    if not devices:
        _log.warning("no_gpu_that_the_engine_sees", profile=profile)
    return offloaded(request, package, profile, devices)


def started(request: PlanRequest, package: Package, device: DeviceFacts) -> PlanRequest:
    """`request` with what was measured on this device: by trials of the engine, else by its forecast."""
    found = known(request, package, device, measurements_dir())
    return applied(request, package, device, measurements_dir()) if found is None else tuned(request, found)


def plan_request(settings: EdgeSettings) -> PlanRequest:
    """What the settings ask of a plan."""
    return PlanRequest(
        slots=settings.slots,
        context_tokens=settings.context_tokens,
        minimum_context_tokens=settings.memory.minimum_context_tokens,
        kv_type=KvType(settings.memory.kv_type),
        threads=settings.engine.threads,
        threads_batch=settings.engine.threads_prefill,
        batch_tokens=settings.engine.batch_tokens,
        deterministic=settings.engine.deterministic,
        sleep_after_s=settings.engine.sleep_after_s,
        reserve_bytes=settings.memory.reserve,
        lock_weights=settings.memory.lock,
        draft_tokens=settings.speculation.draft_tokens,
        ngram_tokens=settings.speculation.ngram_tokens,
    )


def unvouched(problem: TrustError) -> None:
    """A package that passes only because the policy is `warn`."""
    _log.warning("package_not_vouched_for", code=problem.code)


def _drafting(settings: EdgeSettings, package: Package) -> Drafting | None:
    name = settings.speculation.draft
    if name is None or settings.speculation.mode == "off":
        return None
    try:
        draft = package_to_serve(settings.model_copy(update={"model": name}), unvouched)
    except NotFound as error:
        raise NotFound(f"edge.speculation.draft: {error.message}", param="edge.speculation.draft") from None
    found = drafting(package, draft)
    if found.mismatch is not None:
        _log.warning("draft_does_not_fit", draft=name, reason="vocab_mismatch", differs=found.mismatch)
    return found
