"""What the machine says of itself, and what it does not say is null."""

from types import SimpleNamespace
from typing import Any

import pytest

from probes.agent import facts

CONTRACT = (
    "name count memory_bytes multiprocessors compute_capability l2_bytes driver runtime ecc mig power_limit_w "
    "clock_max_hz memory_clock_max_hz links uuid_hash"
).split()


def test_a_device_tells_every_field_of_the_format() -> None:
    found = facts.device_facts(facts.detect())
    assert sorted(found) == sorted(CONTRACT)
    assert found["name"] and found["memory_bytes"] > 0


def test_only_heat_and_faults_count_as_throttled() -> None:
    assert facts.reasons(None) == (None, None)
    assert facts.reasons(0x1) == (False, None)
    assert facts.reasons(0x4) == (False, "clocks held back: power cap")
    assert facts.reasons(0x20 | 0x4) == (True, "clocks held back: thermal, software, power cap")


def test_nvidia_smi_is_read_with_what_it_does_not_know_as_null() -> None:
    found = facts.smi_values("580.159.04, Enabled, [N/A], 700.00, 1980, 3201\n")
    assert found["driver"] == "580.159.04"
    assert (found["ecc"], found["mig"]) == (True, None)
    assert (found["power_limit_w"], found["clock_max_hz"]) == (700.0, 1.98e9)
    assert facts.smi_values("")["power_limit_w"] is None


def test_a_device_is_told_from_another_without_being_named() -> None:
    one, other = facts.hashed("GPU-1"), facts.hashed("GPU-2")
    assert one != other
    assert "GPU" not in one and len(one) == 16


class FakeError(Exception):
    pass


def fake_nvml(**more: Any) -> Any:
    def refuse(*given: Any) -> Any:
        raise FakeError

    names = (
        "nvmlDeviceGetClockInfo nvmlDeviceGetTemperature nvmlDeviceGetCurrentClocksThrottleReasons "
        "nvmlDeviceGetFieldValues nvmlDeviceGetPowerUsage nvmlDeviceGetHandleByUUID nvmlDeviceGetHandleByIndex"
    ).split()
    return SimpleNamespace(NVMLError=FakeError, NVML_CLOCK_SM=1, **(dict.fromkeys(names, refuse) | more))


def test_a_sensor_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml(
        nvmlDeviceGetHandleByIndex=lambda index: "first",
        nvmlDeviceGetClockInfo=lambda handle, clock: 1980,
        nvmlDeviceGetFieldValues=lambda handle, fields: [SimpleNamespace(nvmlReturn=3)],
        nvmlDeviceGetPowerUsage=lambda handle: 698_000,
    )
    monkeypatch.setattr(facts, "nvml", lambda: module)
    read = facts.sensors(SimpleNamespace(uuid="1"))
    assert read is not None
    assert read() == {"power_w": 698.0, "clock_hz": 1.98e9}


def test_without_nvml_there_are_no_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "nvml", lambda: None)
    assert facts.sensors(SimpleNamespace()) is None
