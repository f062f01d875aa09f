"""What libraries know of this machine's heat beside its sysfs tree: NVIDIA's management library, and psutil.

NVIDIA's driver has no sysfs sensor, so its library is asked wherever it is installed. psutil stands in where there is
no tree at all, as on FreeBSD. Both are asked only where the machine's own tree is read: a simulated device has no
part of this machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import psutil

HostLibrary = Literal["nvml", "psutil"]
_NVML = "libnvidia-ml.so.1"
_NVML_OK = 0
_NVML_TEMPERATURE_GPU = 0
_MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class HostSensor:
    """One temperature in degrees Celsius, as a library said it."""

    kind: str
    name: str
    celsius: float


@dataclass(slots=True)
class HostSensors:
    """Asks the libraries named. A library that is absent or fails says nothing, and is not looked for again."""

    libraries: Sequence[HostLibrary]
    load: Callable[[str], Any] = ctypes.CDLL
    temperatures: Callable[[], Any] = field(default_factory=lambda: getattr(psutil, "sensors_temperatures", dict))
    _nvml: Any = None
    _looked: bool = False

    def __call__(self, tree_has_sensors: bool) -> Iterator[HostSensor]:
        """What they know now; psutil only where the tree has nothing, because on Linux it reads that same tree."""
        if "nvml" in self.libraries:
            yield from self._gpus()
        if "psutil" in self.libraries and not tree_has_sensors:
            yield from self._from_psutil()

    def _gpus(self) -> Iterator[HostSensor]:
        library = self._opened()
        if library is None:
            return
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _NVML_OK:
            return
        for index in range(min(count.value, _MOST_GPUS)):
            device, celsius = ctypes.c_void_p(), ctypes.c_uint()
            if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != _NVML_OK:
                continue
            if library.nvmlDeviceGetTemperature(device, _NVML_TEMPERATURE_GPU, ctypes.byref(celsius)) == _NVML_OK:
                yield HostSensor("nvidia", f"nvidia/{index}", float(celsius.value))

    def _opened(self) -> Any:
        """The library, initialised; None where it is absent or the driver does not answer."""
        if not self._looked:
            self._looked = True
            try:
                library = self.load(_NVML)
                if library.nvmlInit_v2() == _NVML_OK:
                    self._nvml = library
            except (OSError, AttributeError):
                self._nvml = None
        return self._nvml

    def _from_psutil(self) -> Iterator[HostSensor]:
        try:
            found = self.temperatures()
        except (OSError, RuntimeError, ValueError):
            return
        for kind, entries in found.items():
            for position, entry in enumerate(entries):
                if entry.current is not None:
                    yield HostSensor(kind, f"{kind}/{entry.label or position}", float(entry.current))
