"""The frameworks whose launch files are written, and which of them can run a plan on a chip."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from advisor.engine.training.frameworks.axolotl import axolotl_run, deepspeed_run
from advisor.engine.training.frameworks.differences import Difference, differences
from advisor.engine.training.frameworks.fsdp import fsdp_run
from advisor.engine.training.frameworks.maxtext import maxtext_run
from advisor.engine.training.frameworks.megatron import megatron_run
from advisor.engine.training.frameworks.neuron import neuron_run
from advisor.engine.training.parallel.layouts import SIZES
from advisor.engine.training.recipes import ModelCode
from advisor.engine.training.run import Run

FrameworkName = Literal["fsdp2", "axolotl", "megatron-bridge", "deepspeed", "maxtext", "nxdt"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingFramework:
    """One training framework as the search of layouts knows it."""

    title: str
    runs: Callable[[Run, str], Run]  # the run that it starts for a plan on chips of this vendor
    vendors: tuple[str, ...]
    code: ModelCode  # whose names of formats it uses
    sizes: tuple[str, ...] = ()  # parallel sizes that it has beside data parallelism
    zeros: tuple[int, ...] = (3,)  # ZeRO stages that are searched on several chips
    tunes_only: bool = False  # searched for fine-tuning alone where another framework of the vendor pretrains
    adapters: bool = False  # searched for LoRA and QLoRA


# PyTorch itself runs on CUDA, ROCm and Intel's GPUs; Gaudi and Ascend have backends of their makers (hpu, torch_npu)
TORCH_VENDORS = ("nvidia", "amd", "intel", "huawei")
FRAMEWORKS: dict[str, TrainingFramework] = {  # where several express a plan equally well, the first is taken
    "fsdp2": TrainingFramework(
        title="PyTorch FSDP2", runs=fsdp_run, vendors=TORCH_VENDORS, code="hf", tunes_only=True, adapters=True
    ),
    "axolotl": TrainingFramework(
        title="Axolotl", runs=axolotl_run, vendors=("nvidia", "amd"), code="hf", adapters=True
    ),
    "megatron-bridge": TrainingFramework(
        title="Megatron-Bridge", runs=megatron_run, vendors=("nvidia",), code="megatron", sizes=SIZES, zeros=(1, 3)
    ),
    "deepspeed": TrainingFramework(
        title="DeepSpeed with Axolotl", runs=deepspeed_run, vendors=("nvidia", "amd"), code="hf"
    ),
    "maxtext": TrainingFramework(
        title="MaxText", runs=maxtext_run, vendors=("google",), code="megatron", sizes=("tp", "cp", "ep")
    ),
    "nxdt": TrainingFramework(
        title="NxD Training", runs=neuron_run, vendors=("aws",), code="megatron", sizes=("tp", "pp", "cp"), zeros=(1,)
    ),
}  # fmt: skip
OFFLOADS_WITH = "deepspeed"
ADAPTERS_FIRST = "axolotl"  # for LoRA and QLoRA


def frameworks_of(vendor: str) -> list[str]:
    """The frameworks whose files run on chips of a vendor."""
    return [name for name, framework in FRAMEWORKS.items() if vendor in framework.vendors]


def searched_frameworks(vendor: str, method: str, whole_model: bool) -> tuple[str, ...]:
    """The frameworks whose layouts are searched on chips of a vendor.

    Adapters run with one framework. All parameters of a published model are tuned with every framework, and a model is
    trained from scratch with those that spread it in several ways, where the vendor has one.
    """
    names = frameworks_of(vendor)
    if method != "full":
        able = [name for name in names if FRAMEWORKS[name].adapters]
        return tuple(able[able.index(ADAPTERS_FIRST) :][:1] if ADAPTERS_FIRST in able else able[:1])
    spreading = [name for name in names if FRAMEWORKS[name].sizes]
    plain = [name for name in names if FRAMEWORKS[name].tunes_only]
    return tuple(spreading if whole_model and spreading else [*spreading, *plain])


def started(run: Run, vendor: str, framework: str) -> Run | None:
    """The run that a framework starts for a plan; None: it may not fit then, or trains something else."""
    actual = FRAMEWORKS[framework].runs(run, vendor)
    return None if any(d.prevents for d in differences(run, actual)) else actual


def launch_differences(run: Run, vendor: str, framework: str) -> tuple[Difference, ...]:
    """What a framework does differently from the plan."""
    return differences(run, FRAMEWORKS[framework].runs(run, vendor))
