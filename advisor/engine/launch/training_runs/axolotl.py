"""A plan as an Axolotl configuration, with FSDP2 or with a DeepSpeed configuration beside it."""

import json
from typing import Any

from advisor.engine.launch.kubernetes import yaml_text
from advisor.engine.launch.training_runs.fsdp import CLIP_NORM, QUERY_VALUE, SEED, WEIGHT_DECAY
from advisor.engine.launch.training_runs.place import DROPOUT_FRACTION, WARMUP_STEPS, TrainingPlace, Written
from advisor.engine.training import Recipe, Run

VERSION = "0.19.0"
DEEPSPEED_VERSION = "0.18.9"  # the newest that this Axolotl accepts (<0.19)
OPTIMIZERS = {
    "adamw": "adamw_torch_fused",
    "adamw_8bit": "adamw_torch_8bit",
    "adafactor": "adafactor",
    "muon": "muon",
    "sgd": "sgd",
}
MOMENTUM = "momentum=0.9"  # of SGD, which transformers runs without unless told


# --- files ------------------------------------------------------------------------------------------------------


def axolotl_files(run: Run, place: TrainingPlace) -> Written:
    """axolotl.yaml with FSDP2, or DDP without sharding."""
    values = _common(run, place) | _fsdp(run)
    return Written(
        argv=("-m", "axolotl.cli.train", "axolotl.yaml"),
        files={"axolotl.yaml": yaml_text(values)},
        install=f"axolotl=={VERSION}",
        prepare=("axolotl preprocess axolotl.yaml",),
        notes=_notes(run),
    )


def deepspeed_files(run: Run, place: TrainingPlace) -> Written:
    """axolotl.yaml and the configuration of DeepSpeed that it names."""
    values = _common(run, place) | {"deepspeed": "ds_config.json"}
    return Written(
        argv=("-m", "axolotl.cli.train", "axolotl.yaml"),
        files={
            "axolotl.yaml": yaml_text(values),
            "ds_config.json": json.dumps(deepspeed_values(run), indent=2) + "\n",
        },
        install=f"'axolotl[deepspeed]=={VERSION}' deepspeed=={DEEPSPEED_VERSION}",
        prepare=("axolotl preprocess axolotl.yaml",),
        notes=(*_notes(run), *_offload_notes(run)),
    )


def _notes(run: Run) -> tuple[str, ...]:
    notes = ["the data are JSON lines with a text field; for conversations set type: chat_template in axolotl.yaml"]
    if run.parallel.cp > 1:
        notes.append("context parallelism needs the ring-flash-attn package")
    return tuple(notes)


def _offload_notes(run: Run) -> tuple[str, ...]:
    if run.offload == "none":
        return ()
    return ("for NVMe instead of host memory set device: nvme and nvme_path in ds_config.json",)


def _common(run: Run, place: TrainingPlace) -> dict[str, Any]:
    r = run.recipe
    steps = place.steps(run)
    values: dict[str, Any] = {
        "base_model": place.model_id,
        "reinit_weights": not place.continued,
        "datasets": [{"path": "json", "data_files": ["text.jsonl"], "type": "completion", "field": "text"}],
        "dataset_prepared_path": "prepared",
        "sequence_len": run.sequence_tokens,
        "sample_packing": True,
        "pad_to_sequence_len": True,
        "attn_implementation": "flash_attention_2",
        "micro_batch_size": run.micro_batch,
        "gradient_accumulation_steps": run.micro_batches,
        "max_steps": steps,
        "num_epochs": 1.0,
        "optimizer": OPTIMIZERS[r.optimizer],
        "learning_rate": place.learning_rate(run),
        "lr_scheduler": "cosine",
        "cosine_min_lr_ratio": 0.1,
        "warmup_steps": min(WARMUP_STEPS, max(steps // 10, 1)),
        "weight_decay": WEIGHT_DECAY,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "max_grad_norm": CLIP_NORM,
        "bf16": r.matmul_dtype != "fp32",
        "gradient_checkpointing": run.recompute == "full",
        "torch_compile": bool(run.code.compiled),
        "output_dir": "checkpoints",
        "save_steps": place.checkpoint_steps(),
        "save_total_limit": 2,
        "auto_resume_from_checkpoints": True,
        "logging_steps": 10,
        "seed": SEED,
    }
    if r.optimizer == "sgd":
        values["optim_args"] = MOMENTUM
    if r.matmul_dtype == "fp8":
        values["fp8"] = True
    if run.recompute == "full":
        values["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    return values | _kernels(run) | _adapters(r)


def _kernels(run: Run) -> dict[str, Any]:
    c = run.code
    values: dict[str, Any] = {}
    if c.loss == "chunked":
        values["chunked_cross_entropy"] = True
    liger = {
        "liger_rms_norm": c.norm == "fused",
        "liger_rope": c.rotary == "fused",
        "liger_glu_activation": c.gate == "fused",
        "liger_fused_linear_cross_entropy": c.loss == "fused_linear",
    }
    if any(liger.values()):
        values |= {"plugins": ["axolotl.integrations.liger.LigerPlugin"], **liger}
    return values


def _adapters(r: Recipe) -> dict[str, Any]:
    if r.method == "full":
        return {}
    values: dict[str, Any] = {
        "adapter": r.method,
        "load_in_4bit": r.method == "qlora",
        "lora_r": r.adapter_rank,
        "lora_alpha": 2 * r.adapter_rank,
        "lora_dropout": DROPOUT_FRACTION if r.adapter_dropout else 0.0,
    }
    if r.adapter_matrices == "query_value":
        return values | {"lora_target_modules": list(QUERY_VALUE)}
    return values | {"lora_target_linear": True}


def _fsdp(run: Run) -> dict[str, Any]:
    p = run.parallel
    values: dict[str, Any] = {"context_parallel_size": p.cp} if p.cp > 1 else {}
    if not p.zero:
        return values
    values["fsdp_version"] = 2
    values["fsdp_config"] = {
        "reshard_after_forward": p.zero == 3,
        "offload_params": run.offload == "all",
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "SHARDED_STATE_DICT",
        "final_state_dict_type": "FULL_STATE_DICT",
        "cpu_ram_efficient_loading": True,
        "sync_module_states": True,
    }
    ranks = p.dp * p.cp
    if p.shard and p.shard < ranks:
        values |= {"dp_shard_size": max(p.shard // p.cp, 1), "dp_replicate_size": ranks // p.shard}
    return values


def deepspeed_values(run: Run) -> dict[str, Any]:
    """ds_config.json; "auto" is what transformers fills in from axolotl.yaml."""
    r = run.recipe
    zero: dict[str, Any] = {
        "stage": run.parallel.zero,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_scatter": True,
    }
    if run.parallel.zero == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if run.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if run.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    values: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "steps_per_print": 1000,
        "bf16": {"enabled": True},
        "communication_data_type": "fp32" if r.reduce_bytes >= 4 else "bf16",
        "data_types": {"grad_accum_dtype": "fp32" if r.gradient_bytes >= 4 else "bf16"},
        "zero_optimization": zero,
    }
    if r.optimizer == "adamw":  # DeepSpeed's own, which runs on the processor when the states are there
        params = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
        values["optimizer"] = {"type": "AdamW", "params": params}
    else:
        values |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    return values
