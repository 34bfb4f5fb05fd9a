"""Speed of a host, from how long it takes to issue kernels, relative to the host of the measured overheads."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advisor.engine.calibration.kernel_samples import Figure, samples

# Mode -> network of the probe -> median seconds on the reference host, with torch on CUDA. `eager` is from
# fixtures/measurements/probes/h200-sxm--one-gpu-torch.json. That run has no `issue` rows. Those of
# h200-sxm--one-gpu-onset-torch.json, whose host launches eagerly in 7.373 us, are taken times 12.039 / 7.373. From that
# host to the H100's (h100-sxm-probe.json), eager launches slow down by 1.83 and the two issue rows by 1.67 and 1.94.
REFERENCE_S: Mapping[str, Mapping[str, float]] = json.loads(Path(__file__).with_name("reference_host.json").read_text())
MODES_DIFFER = 1.1  # eager launches alone tell the speed to issue a block within this ratio (see above)
COMPARABLE = ("torch", "cuda")  # library and backend of the reference
NEEDS = "needs launch rows of modes eager and issue"


def has_host_probe(stacks: Iterable[str]) -> bool:
    """Whether a launch probe can measure the host of a chip with these software stacks."""
    return COMPARABLE[1] in stacks


def host_factor_of(results: Iterable[Mapping[str, Any]], library: str, backend: str) -> Figure | str:
    """host_factor, or why it is not determined.

    The geometric mean over modes; the interval covers the runs of every mode.
    """
    if (library, backend) != COMPARABLE:
        return f"compared with times of torch on CUDA only; this result is of {library} on {backend}"
    by_mode: dict[str, list[tuple[float, float, float]]] = {}
    for s in samples(results):
        mode = str(s.key.get("mode"))
        reference_s = REFERENCE_S.get(mode, {}).get(str(s.key.get("model", "")))
        if s.kind == "launch" and reference_s:
            by_mode.setdefault(mode, []).append((s.low_s / reference_s, s.time_s / reference_s, s.high_s / reference_s))
    if not by_mode:
        return NEEDS
    value = float(np.exp(np.mean([np.mean(np.log([r[1] for r in ratios])) for ratios in by_mode.values()])))
    every = [ratio for ratios in by_mode.values() for ratio in ratios]
    widen = 1.0 if len(by_mode) > 1 else MODES_DIFFER
    return Figure(
        name="host_factor",
        value=value,
        low=min(r[0] for r in every) / widen,
        high=max(r[2] for r in every) * widen,
        count=len(every),
        source=f"host time of launches ({', '.join(sorted(by_mode))}) over that of the reference host",
    )
