"""Facts about the machine: device, host, library versions, and sensors that are read while a kernel runs.

They come from torch and NVML (nvidia-ml-py), or from nvidia-smi with fixed arguments if NVML is not installed.
Unknown facts are null. Nothing is changed: no clock, limit or mode is ever set.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from .measure import Device

# Bits of NVML's clocksEventReasons. The power cap alone is normal; the others count as throttling.
POWER_CAP = 0x4
SLOWED = {0x8: "hardware slowdown", 0x20: "thermal, software", 0x40: "thermal, hardware", 0x80: "power brake"}
NV_LINKS = 18


def detect(max_bytes: int | None = None) -> Device:
    """The device that torch uses. `max_bytes` limits the memory that the probe may allocate on it."""
    import torch

    backend = "cpu"
    if torch.cuda.is_available():
        backend = "rocm" if torch.version.hip else "cuda"
    elif torch.backends.mps.is_available():
        backend = "mps"
    if backend in ("cuda", "rocm"):
        return _gpu(torch, backend, max_bytes)
    memory = host_memory_bytes() or 4 << 30
    limit = min(max_bytes or memory, memory // 4)
    return Device(backend, torch, torch.device(backend), memory, host_cache_bytes(), os.cpu_count() or 1, (0, 0), limit)


def _gpu(torch: Any, backend: str, max_bytes: int | None) -> Device:
    properties = torch.cuda.get_device_properties(0)
    if max_bytes:
        torch.cuda.set_per_process_memory_fraction(min(0.9, max_bytes / properties.total_memory))
    return Device(
        backend=backend,
        torch=torch,
        device=torch.device("cuda", 0),
        memory_bytes=properties.total_memory,
        l2_bytes=getattr(properties, "L2_cache_size", 0) or 64 << 20,
        multiprocessors=properties.multi_processor_count,
        capability=(properties.major, properties.minor),
        limit_bytes=min(max_bytes or properties.total_memory, int(properties.total_memory * 0.8)),
        count=torch.cuda.device_count(),
        sensors=sensors(properties) if backend == "cuda" else None,
    )


def nvml() -> Any:
    """The initialized NVML module, or None."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    module = importlib.import_module("pynvml")
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


def _handle(module: Any, about: Any) -> Any:
    """The NVML handle of torch's device 0, by UUID, since CUDA_VISIBLE_DEVICES may renumber devices."""
    uuid = getattr(about, "uuid", None)
    try:
        return module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") if uuid else module.nvmlDeviceGetHandleByIndex(0)
    except module.NVMLError:
        try:
            return module.nvmlDeviceGetHandleByIndex(0)
        except module.NVMLError:
            return None


def sensors(about: Any) -> Callable[[], Mapping[str, float]] | None:
    """A function that reads power_w, clock_hz, temperature_c and the throttle reasons; None without NVML."""
    module = nvml()
    handle = _handle(module, about) if module else None
    if handle is None:
        return None

    def read() -> Mapping[str, float]:
        readings = {
            "power_w": _query(module, _instant_power_w, module, handle),
            "clock_hz": _query(module, lambda: module.nvmlDeviceGetClockInfo(handle, module.NVML_CLOCK_SM) * 1e6),
            "temperature_c": _query(module, lambda: float(module.nvmlDeviceGetTemperature(handle, 0))),
            "reasons": _query(module, _reason_bits, module, handle),
        }
        return {name: value for name, value in readings.items() if value is not None}

    return read


def _reason_bits(module: Any, handle: Any) -> int:
    """The throttle reasons, from the newer NVML function if it exists."""
    newer = "nvmlDeviceGetCurrentClocksEventReasons"
    name = newer if hasattr(module, newer) else "nvmlDeviceGetCurrentClocksThrottleReasons"
    return int(getattr(module, name)(handle))


def _instant_power_w(module: Any, handle: Any) -> float:
    """Instantaneous power (field 186). Since Ampere, nvmlDeviceGetPowerUsage averages over one second."""
    value = module.nvmlDeviceGetFieldValues(handle, [186])[0]
    if value.nvmlReturn == 0 and value.value.uiVal:
        return float(value.value.uiVal) / 1e3
    return float(module.nvmlDeviceGetPowerUsage(handle)) / 1e3


def _query(module: Any, call: Callable[..., Any], *given: Any) -> Any:
    """The result of an NVML call; None if it is not supported."""
    try:
        return call(*given)
    except (module.NVMLError, AttributeError):
        return None


def reasons(bits: float | None) -> tuple[bool | None, str | None]:
    """Whether the clocks are throttled by heat or a fault, and the throttle reasons as text, from the reason bits."""
    if bits is None:
        return None, None
    faults = [name for bit, name in SLOWED.items() if int(bits) & bit]
    names = [*faults, *(["power cap"] if int(bits) & POWER_CAP else [])]
    return bool(faults), f"clocks held back: {', '.join(names)}" if names else None


def device_facts(device: Device) -> dict[str, Any]:
    """The `device` part of a result."""
    facts: dict[str, Any] = dict.fromkeys(
        "driver runtime ecc mig power_limit_w clock_max_hz memory_clock_max_hz compute_capability uuid_hash".split()
    )
    facts |= {"name": host_cpu() if not device.streams else "", "count": device.count, "links": []}
    facts |= {"memory_bytes": device.memory_bytes, "multiprocessors": device.multiprocessors}
    facts["l2_bytes"] = device.l2_bytes
    if device.streams:
        properties = device.torch.cuda.get_device_properties(0)
        capability = f"{properties.major}.{properties.minor}"
        facts |= {"name": properties.name, "compute_capability": capability}
        facts["runtime"] = device.torch.version.hip or device.torch.version.cuda
        facts["uuid_hash"] = hashed(str(properties.uuid)) if getattr(properties, "uuid", None) else None
        facts |= nvml_facts(properties) if device.nvidia else {}
    return facts


def hashed(identity: str) -> str:
    """A pseudonym of a device, which does not reveal its UUID."""
    return hashlib.sha256(f"assay-device:{identity}".encode()).hexdigest()[:16]


def nvml_facts(about: Any) -> dict[str, Any]:
    """Driver, ECC, MIG, limits and links from NVML, or from nvidia-smi without it."""
    module = nvml()
    handle = _handle(module, about) if module else None
    if handle is None:
        return _smi_facts()
    known = {
        "driver": _query(module, lambda: _text(module.nvmlSystemGetDriverVersion())),
        "ecc": _query(module, lambda: bool(module.nvmlDeviceGetEccMode(handle)[0])),
        "mig": _query(module, lambda: bool(module.nvmlDeviceGetMigMode(handle)[0])),
        "power_limit_w": _query(module, lambda: module.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        "clock_max_hz": _query(module, lambda: module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_SM) * 1e6),
        "memory_clock_max_hz": _query(
            module, lambda: module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_MEM) * 1e6
        ),
        "links": _links(module, handle),
    }
    return {name: value for name, value in known.items() if value is not None}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _links(module: Any, handle: Any) -> list[dict[str, Any]]:
    """Active NVLinks and the PCIe link. NVML does not say whether an NVLink ends at a switch or a GPU."""
    up = [_query(module, lambda i=i: module.nvmlDeviceGetNvLinkState(handle, i)) for i in range(NV_LINKS)]
    version = _query(module, lambda: module.nvmlDeviceGetNvLinkVersion(handle, 0))
    width = _query(module, lambda: module.nvmlDeviceGetMaxPcieLinkWidth(handle))
    generation = _query(module, lambda: module.nvmlDeviceGetMaxPcieLinkGeneration(handle))
    links = []
    if count := sum(state == 1 for state in up):
        links.append({"to": "gpu", "type": f"nvlink{version or ''}", "count": count})
    if width and generation:
        links.append({"to": "host", "type": f"pcie{generation}", "count": width})
    return links


def _smi_facts() -> dict[str, Any]:
    """The same facts from nvidia-smi, as far as it has them."""
    columns = "driver_version,ecc.mode.current,mig.mode.current,power.limit,clocks.max.sm,clocks.max.memory"
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={columns}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return smi_values(process.stdout)


def smi_values(line: str) -> dict[str, Any]:
    """Facts from one CSV line of nvidia-smi."""
    names = ("driver", "ecc", "mig", "power_limit_w", "clock_max_hz", "memory_clock_max_hz")
    texts = dict(zip(names, (text.strip() for text in line.strip().split(",")), strict=False))
    values: dict[str, Any] = {"driver": texts.get("driver") or None}
    for name in ("ecc", "mig"):
        values[name] = {"Enabled": True, "Disabled": False}.get(texts.get(name, ""))
    for name, unit in (("power_limit_w", 1.0), ("clock_max_hz", 1e6), ("memory_clock_max_hz", 1e6)):
        try:
            values[name] = float(texts.get(name, "")) * unit
        except ValueError:
            values[name] = None
    return values


def host_facts() -> dict[str, Any]:
    return {
        "cpu": host_cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": host_memory_bytes(),
        "os": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def host_cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def host_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def host_cache_bytes() -> int:
    """The size of the largest cache of the first core; 32 MiB if unknown."""
    sizes = []
    for index in range(5):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size", encoding="utf-8") as file:
                text = file.read().strip()
        except OSError:
            continue
        sizes.append(int(text.rstrip("KM")) << (20 if text.endswith("M") else 10))
    return max(sizes, default=32 << 20)


def versions(torch: Any) -> dict[str, str]:
    """The versions of the libraries that are present."""
    found = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "hip": torch.version.hip}
    cudnn = torch.backends.cudnn
    found["cudnn"] = str(cudnn.version()) if torch.cuda.is_available() and cudnn.is_available() else None
    if torch.cuda.is_available() and hasattr(torch.cuda, "nccl"):
        try:
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        except (RuntimeError, AttributeError):
            found["nccl"] = None
    if importlib.util.find_spec("triton"):
        found["triton"] = str(importlib.import_module("triton").__version__)
    return {name: value for name, value in found.items() if value}
