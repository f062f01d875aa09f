"""One run of `isthmus up`: the edge pair first, the cloud meanwhile, and in the end no process left."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.clock import Clock
from shared.errors import SettingsError
from shared.launcher import preflight
from shared.launcher.console import Ready, Reporter
from shared.launcher.logfile import LogFile
from shared.launcher.processes import ISTHMUS, sweep
from shared.launcher.readiness import Probe
from shared.launcher.runner import Launch, TierRunner, TierState
from shared.launcher.settings import SimulatedHeat, TierName, UpSettings, wiring_of
from shared.launcher.tiers import TIERS

if TYPE_CHECKING:
    from shared.testing.heat import SimulatedDevice

DONE, INTERRUPTED = 0, 130
_FOLLOW_PAUSE_S = 0.2
_PROGRESS_S = 15.0
_KNOWN_LIMIT_S = 15.0
_SAME_SIGNAL_MS = 300
"""Within this time a second signal is the first one again: a parent such as make passes on what the group got too."""
_RUN_NAME = re.compile(r"[0-9]+-[0-9a-f]{8}\Z")


class Session:
    """Owns the tiers of one run from the first check to the last process."""

    def __init__(
        self,
        settings: UpSettings,
        config: Path | None,
        reporter: Reporter,
        *,
        folder: Path,
        clock: Clock,
        program: tuple[str, ...] = ISTHMUS,
    ) -> None:
        self._settings = settings
        self._config = config
        self._reporter = reporter
        self._folder = folder
        self._clock = clock
        self._program = program
        self._began_ms = clock.now_ms()
        self._run_id = f"{int(clock.unix_s())}-{secrets.token_hex(4)}"
        self._run_folder = folder / self._run_id
        self._sensors = self._run_folder / "sensors"
        self._simulated = self._simulated_heat()
        self._wiring = wiring_of(settings.tiers, config, sensors=self._sensors, simulated=self._simulated)
        self._device: SimulatedDevice | None = None
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._stopped_ms = 0
        self.runners: dict[TierName, TierRunner] = {}

    @property
    def tiers(self) -> tuple[TierName, ...]:
        """The tiers of this run."""
        return tuple(self._wiring.addresses)

    async def run(self) -> int:
        """Run until a signal; 0 after an orderly end, 130 when a second signal cut it short.

        Raises:
            SettingsError: the machine does not allow a start; nothing was started.
            StartFailed: a tier failed before it was ready; everything is stopped.
        """
        self._on_signals()
        if left := await sweep(self._folder):
            self._reporter.note("up", f"ended {left} processes that an earlier run had left behind")
        preflight.check([TIERS[name] for name in self.tiers], self._wiring, self._folder, self._config)
        self._make_run_folder()
        probe = Probe(self._clock, self._wiring.router_tls)
        self._make_runners(probe)
        try:
            await self._serve(probe)
        finally:
            await self._end()
            await probe.close()
        return INTERRUPTED if self._hurry.is_set() else DONE

    def _on_signals(self) -> None:
        def on_signal() -> None:
            if not self._stop.is_set():
                self._begin_end()
            elif self._clock.now_ms() - self._stopped_ms >= _SAME_SIGNAL_MS:
                self._hurry.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)

    def _begin_end(self) -> None:
        self._stop.set()
        self._stopped_ms = self._clock.now_ms()

    def _make_run_folder(self) -> None:
        """A folder for logs and simulated sensors; those of the oldest runs go."""
        earlier = sorted(each for each in self._folder.iterdir() if _RUN_NAME.match(each.name))
        for old in earlier[: max(0, len(earlier) + 1 - self._settings.kept_runs)]:
            shutil.rmtree(old, ignore_errors=True)
        self._sensors.mkdir(parents=True, mode=0o700)

    def _make_runners(self, probe: Probe) -> None:
        launch = Launch(
            self._run_id,
            folder=self._folder,
            logs=self._run_folder,
            config=self._config,
            restart=self._settings.restart,
            clock=self._clock,
            program=self._program,
        )
        for name, address in self._wiring.addresses.items():
            self.runners[name] = TierRunner(
                TIERS[name],
                launch,
                probe,
                self._reporter,
                url=address.url,
                settings=self._wiring.variables[name],
                ready_limit_s=self._settings.ready_limits_s.of(name),
            )

    def _simulated_heat(self) -> SimulatedHeat | None:
        heat = self._settings.heat
        if heat.scenario is None:
            return None
        if "edge" not in self._settings.tiers:
            raise SettingsError("Simulated heat needs the edge tier.", param="up.heat.scenario")
        return SimulatedHeat(heat.scenario, self._run_folder / "heat", heat.compression)

    def _facts(self) -> dict[str, Any]:
        return {
            "heat": None if self._device is None else self._device.facts(),
            "run_id": self._run_id,
            "endpoint": self._endpoint,
            "model": self._wiring.model,
            "logs": str(self._run_folder),
            "sensors": str(self._sensors),
        }

    @property
    def _endpoint(self) -> str:
        return f"{self._wiring.addresses['router'].url}/v1"

    async def _serve(self, probe: Probe) -> None:
        """Start all tiers and return at the stop signal; a failed start is raised."""
        tasks = [
            asyncio.create_task(self._stop.wait()),
            asyncio.create_task(self._start(probe)),
            asyncio.create_task(self._answer_control()),
            asyncio.create_task(self._follow()),
            asyncio.create_task(self._tell_progress()),
            *([asyncio.create_task(self._heat(self._simulated))] if self._simulated else []),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise _first(error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, probe: Probe) -> None:
        """Edge pair first: on two cores the cloud's start would hold it back for a minute."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.runners["router"].run())
            if "edge" in self.runners:
                group.create_task(self._prepared("edge"))
                await self._ready(("edge", "router"), "edge", probe)
            if "cloud" in self.runners:
                group.create_task(self._prepared("cloud"))
                await self._ready(tuple(self.runners), "cloud", probe)

    async def _prepared(self, name: TierName) -> None:
        # The cloud's checkpoint follows its settings, so its own command decides whether there is anything to do.
        if name == "cloud" or not preflight.is_prepared(TIERS[name], self._wiring):
            await self.runners[name].prepare()
        await self.runners[name].run()

    async def _ready(self, tiers: tuple[TierName, ...], awaited: str, probe: Probe) -> None:
        for name in tiers:
            await self.runners[name].was_ready.wait()
        if not await probe.until_known(self.runners["router"].url, awaited, limit_s=_KNOWN_LIMIT_S):
            self._reporter.note("router", f"does not see the {awaited} tier yet: see its log")
        after_s = (self._clock.now_ms() - self._began_ms) / 1000
        asks = self._wiring.asks_for_key or await probe.asks_for_key(self.runners["router"].url)
        self._reporter.ready(Ready(tiers, self._endpoint, self._wiring.model, asks, after_s, self._run_folder))

    async def _answer_control(self) -> None:
        """Serve the control socket, whose library is loaded while the tiers load theirs."""
        await self.runners["router"].launched.wait()
        from shared.launcher.control import Control  # noqa: PLC0415 - above all, the tiers start first

        socket = preflight.control_socket(self._folder)
        async with Control(socket, self.runners, self._facts, restart_heat=self._restart_heat, stop=self._begin_end):
            await self._stop.wait()

    async def _heat(self, simulated: SimulatedHeat) -> None:
        """Play the simulated device from the start on; its scenario begins once every tier is ready."""
        from shared.testing.heat import EngineLoad, SensorTree, SimulatedDevice  # noqa: PLC0415 - few runs need it

        load = EngineLoad(lambda: self.runners["edge"].pid)
        self._device = SimulatedDevice(
            SensorTree(simulated.tree),
            simulated.scenario,
            load.ratio,
            compression=simulated.compression,
            clock=self._clock,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._device.run())
            for runner in self.runners.values():
                await runner.was_ready.wait()
            self._reporter.note("up", f"simulated heat: {simulated.scenario}, {simulated.compression:g} times as fast")
            self._device.restart()

    def _restart_heat(self) -> bool:
        """Begin the scenario again; False where no device is simulated."""
        if self._device is None:
            return False
        self._device.restart()
        return True

    async def _follow(self) -> None:
        files = {
            name: LogFile(self._run_folder / f"{name}.log", limit_bytes=self._settings.log_bytes)
            for name in self.runners
        }
        while True:
            for name, file in files.items():
                for line in file.new_lines():
                    self._reporter.log_line(name, line)
            await self._clock.sleep(_FOLLOW_PAUSE_S)

    async def _tell_progress(self) -> None:
        """Say now and then what is still being waited for."""
        while True:
            await self._clock.sleep(_PROGRESS_S)
            for name, runner in self.runners.items():
                if not runner.was_ready.is_set() and runner.state is not TierState.WAITING:
                    self._reporter.note(name, f"still {runner.state}")

    async def _end(self) -> None:
        """End every process: asked first, killed at the limit or at the second signal."""
        self._reporter.note("up", "stopping (Ctrl-C again to stop at once)")
        for runner in self.runners.values():
            runner.ask_to_stop()
        ended = asyncio.create_task(self._all_ended())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({ended, hurried}, timeout=self._settings.stop_limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            for runner in self.runners.values():
                runner.kill_now()
        known = [process for runner in self.runners.values() for process in runner.family]
        await sweep(self._folder, run_id=self._run_id, known=known)
        await ended
        hurried.cancel()
        self._reporter.note("up", "stopped")

    async def _all_ended(self) -> None:
        for runner in self.runners.values():
            await runner.ended()


def _first(error: BaseException) -> BaseException:
    """The first single error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
