"""NVIDIA's library and psutil as sources: present, absent, failing."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from edge.devices.host_sensors import HostSensor, HostSensors


class _Nvml:
    """The calls of the management library for two GPUs, of which the second does not answer."""

    def __init__(self, *, init: int = 0) -> None:
        self._init = init

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the library's names
        return self._init

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, device: Any) -> int:  # noqa: N802
        device._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetTemperature(self, device: ctypes.c_void_p, kind: int, celsius: Any) -> int:  # noqa: N802
        celsius._obj.value = 71
        return 0 if device.value == 1 and kind == 0 else 15


def _psutil() -> dict[str, list[SimpleNamespace]]:
    return {"cpu": [SimpleNamespace(label="", current=50.0), SimpleNamespace(label="die", current=None)]}


def _absent(_: str) -> Any:
    raise OSError("no such library")


def test_every_gpu_that_answers_is_a_sensor() -> None:
    host = HostSensors(("nvml",), load=lambda _: _Nvml())
    assert list(host(True)) == [HostSensor("nvidia", "nvidia/0", 71.0)]


@pytest.mark.parametrize("load", [_absent, lambda _: _Nvml(init=9), lambda _: object()])
def test_a_library_that_is_not_there_says_nothing_and_is_not_looked_for_again(load: Any) -> None:
    calls = []

    def counted(name: str) -> Any:
        calls.append(name)
        return load(name)

    host = HostSensors(("nvml",), load=counted)
    assert list(host(False)) == []
    assert list(host(False)) == []
    assert len(calls) == 1


def test_psutil_stands_in_where_no_tree_is() -> None:
    host = HostSensors(("psutil",), temperatures=_psutil)
    assert list(host(True)) == []
    assert list(host(False)) == [HostSensor("cpu", "cpu/0", 50.0)]


def test_psutil_that_fails_says_nothing() -> None:
    def failing() -> Any:
        raise RuntimeError("sensors")

    assert list(HostSensors(("psutil",), temperatures=failing)(False)) == []


def test_nothing_is_asked_that_is_not_named() -> None:
    assert list(HostSensors((), load=_absent, temperatures=_psutil)(False)) == []
