"""What is measured on this device for the engine of the settings, what is known already, and what it is then told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edge.devices.probe import DeviceFacts
from edge.packages.package import Package
from edge.runtime import tunings
from edge.runtime.forecast import engine_version
from edge.runtime.options import EngineOptions
from edge.runtime.plan import PlanRequest, StaticPlan, ubatch_tokens
from edge.runtime.tuner import Progress, Tuner
from edge.scheduling.tuning import Tuning
from shared import logs

_FORMAT = "gguf"


class TuningJob:
    """Measures once, and keeps what was found; what the operator has chosen himself stays."""

    def __init__(
        self, request: PlanRequest, plan: StaticPlan, device: DeviceFacts, folder: Path, run_dir: Path
    ) -> None:
        if not isinstance(plan.options, EngineOptions):
            raise TypeError("only the engine of GGUF packages is tuned")
        self._request = request
        self._folder = folder
        self._identity = identity_of(request, plan.package, device)
        # As it is started unmeasured: a smaller batch that was chosen before must not bound the next choice.
        basis = replace(plan.options, ubatch_tokens=_ubatch_tokens(request, plan.package))
        self._tuner = Tuner(plan.package, basis, cores=device.cores_usable, run_dir=run_dir)

    @property
    def share_done(self) -> float:
        """Between 0 and 1."""
        progress = self._tuner.progress
        return progress.done / progress.steps

    async def run(self, listener: Callable[[Progress], None] = lambda _: None) -> Tuning:
        """See edge.service.tuning_watch; raises as `Tuner.run`. What cannot be written is measured again."""
        tuning = await self._tuner.run(listener)
        try:
            tunings.keep(self._folder, self._identity, tuning)
        except OSError as error:
            logs.get("tuning").warning("tuning_not_kept", why=error.strerror)
        return within(self._request, tuning)


def identity_of(request: PlanRequest, package: Package, device: DeviceFacts) -> dict[str, str]:
    """What a tuning for this request depends on."""
    return tunings.identity(device, engine_version(), package.digest, request.kv_type, _ubatch_tokens(request, package))


def _ubatch_tokens(request: PlanRequest, package: Package) -> int:
    return ubatch_tokens(replace(request, pooling=package.manifest.model.pooling))


def known(request: PlanRequest, package: Package, device: DeviceFacts, folder: Path) -> Tuning | None:
    """What was measured before, as far as the operator has not chosen himself; None where nothing was."""
    if package.manifest.model.format != _FORMAT:
        return None
    found = tunings.kept(folder, identity_of(request, package, device))
    return None if found is None else within(request, found)


def is_open(request: PlanRequest, package: Package) -> bool:
    """Whether there is anything to choose."""
    chosen = None not in (request.threads, request.threads_batch, request.batch_tokens)
    return package.manifest.model.format == _FORMAT and not chosen


def within(request: PlanRequest, tuning: Tuning) -> Tuning:
    """`tuning` where the operator left it open."""
    return replace(
        tuning,
        threads=request.threads or tuning.threads,
        threads_batch=request.threads_batch or tuning.threads_batch,
        batch_tokens=request.batch_tokens or tuning.batch_tokens,
    )


def tuned(request: PlanRequest, tuning: Tuning) -> PlanRequest:
    """`request` with all of it chosen."""
    return replace(
        request,
        threads=tuning.threads,
        threads_batch=tuning.threads_batch,
        spin=tuning.spin,
        batch_tokens=tuning.batch_tokens,
    )
