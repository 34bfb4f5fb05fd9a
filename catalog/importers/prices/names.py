"""Maps accelerator names in price lists to slugs of the catalog.

Most lists do not distinguish SXM from PCIe. A bare name maps to the variant that clouds rent most, and the note of
the imported price says so.
"""

import re

SLUGS = {
    "A10": "a10",
    "A10G": "a10g",
    "A30": "a30",
    "A40": "a40",
    "A100": "a100-40gb-sxm",
    "A100-40GB": "a100-40gb-sxm",
    "A100-80GB": "a100-80gb-sxm",
    "A100-80GB-PCIE": "a100-80gb-pcie",
    "A100-80GB-SXM": "a100-80gb-sxm",
    "B200": "b200",
    "B300": "b300",
    "GB200": "gb200",
    "GB300": "gb300",
    "GH200": "gh200-96gb",
    "H100": "h100-sxm",
    "H100-MEGA": "h100-sxm",
    "H100-NVL": "h100-nvl",
    "H100-PCIE": "h100-pcie",
    "H100-SXM": "h100-sxm",
    "H200": "h200-sxm",
    "H200-SXM": "h200-sxm",
    "INFERENTIA2": "inferentia2",
    "L4": "l4",
    "L40": "l40",
    "L40S": "l40s",
    "MI250": "mi250",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI355X": "mi355x",
    "RTX3090": "rtx-3090",
    "RTX4090": "rtx-4090",
    "RTX5090": "rtx-5090",
    "RTX6000-ADA": "rtx-6000-ada",
    "RTX6000ADA": "rtx-6000-ada",
    "RTXA5000": "rtx-a5000",
    "RTXA6000": "rtx-a6000",
    "A6000": "rtx-a6000",
    "RTXPRO6000": "rtx-pro-6000-blackwell-server",
    "T4": "t4",
    "TRAINIUM": "trainium1",
    "TRAINIUM2": "trainium2",
    "V100": "v100-16gb-sxm",
    "V100-32GB": "v100-32gb-sxm",
}
AMBIGUOUS = {"A100", "A100-40GB", "A100-80GB", "H100", "V100", "V100-32GB"}
TPU = {"V4": "tpu-v4", "V5LITEPOD": "tpu-v5e", "V5E": "tpu-v5e", "V5P": "tpu-v5p", "V6E": "tpu-v6e"}
ASSUMED_NOTE = "SXM/PCIe not stated by the source"


def slice_chips(name: str) -> int:
    """Chips in a slice such as `tpu-v5p-8`. v5e and v6e count chips; the others count TensorCores, two per chip."""
    match = re.fullmatch(r"TPU-(V\d+(?:LITEPOD|E|P)?)-(\d+)", name.strip().upper())
    if match is None:
        return 1
    size = int(match[2])
    return size if match[1] in ("V5LITEPOD", "V5E", "V6E") else max(1, size // 2)


def accelerator(name: str, memory_gib: float | None = None) -> tuple[str | None, str]:
    """The slug of a name (None: unknown) and a note on assumptions. `memory_gib` distinguishes sizes with one name."""
    key = re.sub(r"[\s_]+", "-", name.strip().upper())
    if match := re.match(r"TPU-(V\d+(?:LITEPOD|E|P)?)", key):
        return TPU.get(match[1]), ""
    if key in ("A100", "V100") and memory_gib:
        key += {40: "-40GB", 80: "-80GB", 32: "-32GB"}.get(round(memory_gib), "")
    return SLUGS.get(key) or SLUGS.get(key.replace("-", "")), ASSUMED_NOTE if key in AMBIGUOUS else ""
