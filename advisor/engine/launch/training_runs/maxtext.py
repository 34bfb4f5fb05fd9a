"""A plan for TPUs as a MaxText configuration."""

import json
from typing import Any

from advisor.engine.launch.kubernetes import yaml_text
from advisor.engine.launch.training_runs.fsdp import CLIP_NORM, FOLDER, SEED, WEIGHT_DECAY
from advisor.engine.launch.training_runs.place import WARMUP_STEPS, TrainingPlace, Written
from advisor.engine.training import Recipe, Run

VERSION = "0.2.5"
# names in configs/models and in HF_IDS of utils/globals.py, 0.2.5, also of siblings of one shape
MODELS: dict[str, str] = json.loads((FOLDER / "maxtext_models.json").read_text(encoding="utf-8"))
MODEL_PLACEHOLDER = "<name of the model in maxtext/configs/models>"
PARAMETERS = "<checkpoint of the converted parameters>"
PRETRAINING, TUNING = "maxtext.trainers.pre_train.train", "maxtext.trainers.post_train.sft.train_sft"
ALL_MATRICES = "decoder/layers/.*(self_attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))"
QUERY_VALUE = "decoder/layers/.*self_attention/(query|value)"


def maxtext_files(run: Run, place: TrainingPlace) -> Written:
    """maxtext.yml on top of MaxText's base.yml."""
    values = maxtext_values(run, place)
    tuned = run.recipe.method != "full"
    return Written(
        argv=("-m", TUNING if tuned else PRETRAINING, "maxtext.yml"),
        files={"maxtext.yml": yaml_text(values)},
        under_torchrun=False,
        install=f"'maxtext[tpu]=={VERSION}' (Python 3.12)",
        prepare=_prepare(place),
        notes=_notes(place, tuned),
    )


def _prepare(place: TrainingPlace) -> tuple[str, ...]:
    if not place.continued:
        return ()
    return (
        "python -m maxtext.checkpoint_conversion.to_maxtext maxtext.yml base_output_directory=<folder of the result>"
        "  # once; then set load_parameters_path",
    )


def _notes(place: TrainingPlace, tuned: bool) -> tuple[str, ...]:
    notes = ["one slice of connected TPUs is assumed; for several, move data parallelism to dcn_data_parallelism"]
    notes.append("XLA chooses and fuses the kernels; text.jsonl has a text field")
    if place.model_id not in MODELS:
        notes.append("replace the text in < > with MaxText's name of the model")
    if tuned:
        notes.append("lora_module_path names the layers of Llama and Qwen: see lora_module_path.yml for others")
    return tuple(notes)


def maxtext_values(run: Run, place: TrainingPlace) -> dict[str, Any]:
    """Keys of maxtext.yml."""
    r = run.recipe
    steps = place.steps(run)
    values: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": "run",
        "model_name": MODELS.get(place.model_id, MODEL_PLACEHOLDER),
        "tokenizer_path": place.model_id,
        "tokenizer_type": "huggingface",
        "base_output_directory": "checkpoints",
        "dataset_type": "hf",
        "hf_path": "json",
        "hf_train_files": "text.jsonl",
        "train_data_columns": ["text"],
        "packing": True,
        "max_target_length": run.sequence_tokens,
        "per_device_batch_size": run.micro_batch * run.parallel.dp / run.parallel.chips,
        "gradient_accumulation_steps": run.micro_batches,
        "steps": steps,
        "opt_type": r.optimizer,
        "learning_rate": place.learning_rate(run),
        "warmup_steps_fraction": min(WARMUP_STEPS / steps, 0.1),
        "adam_b1": 0.9,
        "adam_b2": 0.95,
        "adam_weight_decay": WEIGHT_DECAY,
        "gradient_clipping_threshold": CLIP_NORM,
        "weight_dtype": _dtype(r.parameter_bytes),
        "dtype": _dtype(r.compute_bytes),
        "grad_dtype": _dtype(r.gradient_bytes),
        "quantization": "fp8_full" if r.matmul_dtype == "fp8" else "",
        "use_qwix_quantization": r.matmul_dtype == "fp8",
        "remat_policy": "full" if run.recompute == "full" else "minimal",
        "optimizer_memory_host_offload": run.offload != "none",
        "parameter_memory_host_offload": run.offload == "all",
        "attention": "flash",
        "enable_checkpointing": True,
        "async_checkpointing": True,
        "checkpoint_period": place.checkpoint_steps(),
        "log_period": 10,
        "init_weights_seed": SEED,
    }
    if place.continued:
        values["load_parameters_path"] = PARAMETERS
    return values | _axes(run) | _adapters(r)


def _dtype(width_bytes: float) -> str:
    return "float32" if width_bytes >= 4 else "bfloat16"


def _axes(run: Run) -> dict[str, Any]:
    p = run.parallel
    sharded = p.shards // (p.cp * p.ep) if p.zero == 3 else 1
    tensor = "ici_tensor_sequence_parallelism" if p.sequence_parallel else "ici_tensor_parallelism"
    return {
        "dcn_data_parallelism": 1,
        "ici_data_parallelism": p.dp // (p.ep * sharded),
        "ici_fsdp_parallelism": sharded,
        tensor: p.tp,
        "ici_context_parallelism": p.cp,
        "context_parallel_strategy": "ring" if run.code.context == "ring" else "all_gather",
        "ici_expert_parallelism": p.ep,
        "shard_optimizer_over_data": p.zero == 1,
    }


def _adapters(r: Recipe) -> dict[str, Any]:
    if r.method == "full":
        return {}
    lora = {
        "enable_lora": True,
        "lora_rank": r.adapter_rank,
        "lora_alpha": 2.0 * r.adapter_rank,
        "lora_module_path": QUERY_VALUE if r.adapter_matrices == "query_value" else ALL_MATRICES,
        "lora_weight_qtype": "nf4" if r.method == "qlora" else None,
    }
    return {"base_config": "post_train/sft.yml", "use_sft": True, "sft_train_on_completion_only": False, "lora": lora}
