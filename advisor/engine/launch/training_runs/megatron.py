"""A plan as a script for Megatron-Bridge, which builds Megatron-Core models from Hugging Face ones."""

import pprint
import shlex
from typing import Any

from advisor.engine.launch.training_runs.fsdp import CLIP_NORM, PREPARE, SEED, WEIGHT_DECAY
from advisor.engine.launch.training_runs.place import DROPOUT_FRACTION, WARMUP_STEPS, TrainingPlace, Written
from advisor.engine.training import Recipe, Run

VERSION, CORE_VERSION = "0.3.1", "0.16.1"
PRECISION = {
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
OPTIMIZERS = {"adamw": "adam", "sgd": "sgd", "muon": "dist_muon"}
BACKENDS = {"cudnn": "fused", "flash2": "flash", "math": "unfused"}
LAYER_MATRICES = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
QUERY_VALUE = ["linear_q", "linear_v"]
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # of Megatron FSDP


# --- script -----------------------------------------------------------------------------------------------------


class Name(str):
    """Python code, written as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def megatron_files(run: Run, place: TrainingPlace) -> Written:
    """The training script, the import of the published checkpoint and the preparation of the tokens."""
    files = {"train_megatron.py": _script(run, place), "prepare_tokens.py": PREPARE}
    prepare = [f"python prepare_tokens.py {shlex.quote(place.model_id)} text.jsonl tokens.idx"]
    if place.continued:
        files["import_checkpoint.py"] = _import(place)
        prepare.append("python import_checkpoint.py  # once, on a host whose memory holds the model")
    return Written(
        argv=("train_megatron.py",),
        files=files,
        install=f"megatron-bridge=={VERSION} megatron-core=={CORE_VERSION}",
        prepare=tuple(prepare),
        notes=_notes(run),
    )


def _notes(run: Run) -> tuple[str, ...]:
    notes = ["Transformer Engine must be installed for this GPU: use NVIDIA's NeMo container, or build it"]
    if run.parallel.ep > 1 and run.code.dispatch == "one_copy":
        notes.append(
            "install DeepEP for the dispatch of experts, or HybridEP on GB200 and GB300 (set it in the script)"
        )
    if run.code.tp_overlap:
        notes.append("the overlap of tensor parallelism needs user buffers sized for this model: see CommOverlapConfig")
    return tuple(notes)


def _import(place: TrainingPlace) -> str:
    return (
        '"""Converts the published checkpoint for Megatron-Core."""\n\n'
        "from megatron.bridge import AutoBridge\n\n"
        'if __name__ == "__main__":\n'
        f'    AutoBridge.import_ckpt({place.model_id!r}, "pretrained")\n'
    )


def _script(run: Run, place: TrainingPlace) -> str:
    assignments = "".join(f"model.{name} = {value!r}\n" for name, value in _model(run).items())
    precision = "".join(f"precision.{name} = {value!r}\n" for name, value in _precision(run).items())
    return HEAD.format(
        model_id=place.model_id,
        assignments=assignments,
        recipe=PRECISION[run.recipe.matmul_dtype],
        precision=precision,
        config=_config(run, place),
        start="finetune" if place.continued else "pretrain",
    )


HEAD = '''"""Trains a model with Megatron-Bridge: torchrun train_megatron.py"""

import torch
from megatron.bridge import AutoBridge
from megatron.bridge.peft.canonical_lora import CanonicalLoRA
from megatron.bridge.peft.lora import LoRA
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    GPTDatasetConfig,
    LoggerConfig,
    OptimizerConfig,
    RNGConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain
from megatron.core.transformer.enums import AttnBackend

model = AutoBridge.from_hf_pretrained({model_id!r}).to_megatron_provider(load_weights=False)
{assignments}
precision = get_mixed_precision_config("{recipe}")
{precision}
config = {config}

if __name__ == "__main__":
    {start}(config=config, forward_step_func=forward_step)
'''


def _model(run: Run) -> dict[str, Any]:
    p, c = run.parallel, run.code
    values: dict[str, Any] = {
        "seq_length": run.sequence_tokens,
        "tensor_model_parallel_size": p.tp,
        "pipeline_model_parallel_size": p.pp,
        "virtual_pipeline_model_parallel_size": p.virtual_stages if p.virtual_stages > 1 else None,
        "context_parallel_size": p.cp,
        "expert_model_parallel_size": p.ep,
        "sequence_parallel": p.sequence_parallel,
        "attention_backend": Name(f"AttnBackend.{BACKENDS[c.attention]}"),
        "apply_rope_fusion": c.rotary == "fused",
        "bias_activation_fusion": c.gate == "fused",
        "cross_entropy_loss_fusion": True,
    }
    if p.pp > 1:
        values["pipeline_dtype"] = Name("torch.bfloat16")
    if run.offloaded_layers:
        values |= {"cpu_offloading": True, "cpu_offloading_num_layers": run.offloaded_layers}
    if p.cp > 1:
        values["cp_comm_type"] = "p2p" if c.context == "ring" else "all_gather"
    return values | _recompute(run) | _experts(run) | _graphs(run)


def _recompute(run: Run) -> dict[str, Any]:
    if run.recompute == "none":
        return {"recompute_granularity": None}
    if run.recompute == "selective":
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def _experts(run: Run) -> dict[str, Any]:
    if run.parallel.ep == 1:
        return {}
    values: dict[str, Any] = {"expert_tensor_parallel_size": 1}
    if run.code.dispatch == "alltoall":
        return values | {"moe_token_dispatcher_type": "alltoall"}
    return values | {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}


def _graphs(run: Run) -> dict[str, Any]:
    if run.code.graphs == "none":
        return {"cuda_graph_impl": "none"}
    if run.code.graphs == "full":
        return {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration", "use_te_rng_tracker": True}
    scope = ["attn", "moe_router"] if run.parallel.ep > 1 else ["attn"]
    return {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": scope, "use_te_rng_tracker": True}


def _precision(run: Run) -> dict[str, Any]:
    """The named recipe, with weights gathered in BF16, as the plan stores them."""
    values: dict[str, Any] = {"grad_reduce_in_fp32": run.recipe.reduce_bytes >= 4}
    if run.recipe.matmul_dtype in ("fp8", "mxfp8"):
        values |= {"fp8_param_gather": False, "reuse_grad_buf_for_mxfp8_param_ag": False}
    if run.recipe.matmul_dtype == "fp8":
        values["first_last_layers_bf16"] = False
    return values


def _config(run: Run, place: TrainingPlace) -> str:
    fsdp = run.parallel.zero >= 2
    parts = {
        "model": Name("model"),
        "train": _call("TrainingConfig", _training(run, place)),
        "optimizer": _call("OptimizerConfig", _optimizer(run, place)),
        "scheduler": _call("SchedulerConfig", _schedule(run, place)),
        "ddp": _call("DistributedDataParallelConfig", _data_parallel(run)),
        "dist": _call("DistributedInitConfig", {"use_megatron_fsdp": fsdp}),
        "dataset": _call("GPTDatasetConfig", _dataset(run)),
        "tokenizer": _call(
            "TokenizerConfig", {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": place.model_id}
        ),
        "checkpoint": _call("CheckpointConfig", _checkpoint(place, fsdp)),
        "rng": _call("RNGConfig", {"seed": SEED, "te_rng_tracker": run.code.graphs != "none"}),
        "logger": _call("LoggerConfig", {"log_interval": 10, "log_throughput": True}),
        "mixed_precision": Name("precision"),
        "peft": _peft(run.recipe),
        "comm_overlap": _overlap(run),
    }
    return str(_call("ConfigContainer", parts))


def _call(name: str, values: dict[str, Any]) -> Name:
    lines = "".join(f"    {key}={_indented(value)},\n" for key, value in values.items())
    return Name(f"{name}(\n{lines})")


def _indented(value: Any) -> str:
    return (repr(value) if isinstance(value, Name) else pprint.pformat(value, width=100)).replace("\n", "\n    ")


def _training(run: Run, place: TrainingPlace) -> dict[str, Any]:
    return {
        "micro_batch_size": run.micro_batch,
        "global_batch_size": run.micro_batch * run.micro_batches * run.parallel.dp,
        "train_iters": place.steps(run),
        "eval_iters": 0,
        "manual_gc": True,
        "manual_gc_interval": 100,
    }


def _optimizer(run: Run, place: TrainingPlace) -> dict[str, Any]:
    values: dict[str, Any] = {
        "optimizer": OPTIMIZERS[run.recipe.optimizer],
        "lr": place.learning_rate(run),
        "min_lr": place.last_learning_rate(run),
        "weight_decay": WEIGHT_DECAY,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "clip_grad": CLIP_NORM,
        "bf16": True,
        "use_distributed_optimizer": run.parallel.zero >= 1 and run.recipe.optimizer != "muon",
    }
    if run.recipe.optimizer == "adamw" and run.recipe.state_bytes <= 4:
        narrow = Name("torch.bfloat16")
        values |= {"use_precision_aware_optimizer": True, "exp_avg_dtype": narrow, "exp_avg_sq_dtype": narrow}
    if run.offload != "none":
        values |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0}
    return values


def _schedule(run: Run, place: TrainingPlace) -> dict[str, Any]:
    steps = place.steps(run)
    return {
        "lr_decay_style": "cosine",
        "lr_warmup_iters": min(WARMUP_STEPS, max(steps // 10, 1)),
        "lr_decay_iters": steps,
        "start_weight_decay": WEIGHT_DECAY,
        "end_weight_decay": WEIGHT_DECAY,
    }


def _data_parallel(run: Run) -> dict[str, Any]:
    p = run.parallel
    distributed = p.zero >= 1 and run.recipe.optimizer != "muon"
    values: dict[str, Any] = {
        "grad_reduce_in_fp32": run.recipe.reduce_bytes >= 4,
        "overlap_grad_reduce": True,
        "overlap_param_gather": distributed,
        "use_distributed_optimizer": distributed,
        "num_distributed_optimizer_instances": p.dp * p.cp // p.shard if p.shard else 1,
        "check_for_nan_in_grad": True,
    }
    if p.zero >= 2:
        values |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": SHARDING[p.zero]}
    return values


def _dataset(run: Run) -> dict[str, Any]:
    return {
        "seq_length": run.sequence_tokens,
        "blend": (["tokens"], None),
        "split": "100,0,0",
        "random_seed": SEED,
        "reset_position_ids": False,
        "reset_attention_mask": False,
        "eod_mask_loss": False,
        "dataloader_type": "single",
        "num_workers": 8,
    }


def _checkpoint(place: TrainingPlace, fsdp: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "save": "checkpoints",
        "load": "checkpoints",
        "save_interval": place.checkpoint_steps(),
        "ckpt_format": "fsdp_dtensor" if fsdp else "torch_dist",
        "async_save": not fsdp,
    }
    return values | ({"pretrained_checkpoint": "pretrained"} if place.continued else {})


def _peft(r: Recipe) -> Name:
    if r.method == "full":
        return Name("None")
    by_query = r.adapter_matrices == "query_value"
    values = {
        "target_modules": QUERY_VALUE if by_query else LAYER_MATRICES,
        "dim": r.adapter_rank,
        "alpha": 2 * r.adapter_rank,
        "dropout": DROPOUT_FRACTION if r.adapter_dropout else 0.0,
    }
    return _call("CanonicalLoRA" if by_query else "LoRA", values)


def _overlap(run: Run) -> Name:
    values: dict[str, Any] = {"tp_comm_overlap": run.code.tp_overlap}
    if run.parallel.ep > 1:
        values["overlap_moe_expert_parallel_comm"] = run.code.exchange_overlap
    return _call("CommOverlapConfig", values)
