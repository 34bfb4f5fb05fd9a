"""A plan for Trainium as a configuration of NxD Training."""

from typing import Any

from advisor.engine.launch.kubernetes import yaml_text
from advisor.engine.launch.training_runs.fsdp import CLIP_NORM, SEED, WEIGHT_DECAY
from advisor.engine.launch.training_runs.place import DROPOUT_FRACTION, WARMUP_STEPS, TrainingPlace, Written
from advisor.engine.training import Recipe, Run

MATRICES = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
CONFIG = "<folder with the model's config.json>"
LAYERS, WIDTH = "<num_hidden_layers of config.json>", "<hidden_size of config.json>"


def neuron_files(run: Run, place: TrainingPlace) -> Written:
    """conf/plan.yaml for the training script of NxD Training's examples."""
    return Written(
        argv=("training_orchestrator.py", "--config-path=conf", "--config-name=plan"),
        files={"conf/plan.yaml": yaml_text(neuron_values(run, place))},
        in_pods=False,
        install="neuronx_distributed_training --extra-index-url https://pip.repos.neuron.amazonaws.com",
        prepare=_prepare(place),
        notes=_notes(run, place),
    )


def _prepare(place: TrainingPlace) -> tuple[str, ...]:
    lines = ["neuron_parallel_compile torchrun training_orchestrator.py --config-path=conf --config-name=plan"]
    if place.continued:
        lines.insert(
            0, "python checkpoint_converter_scripts/checkpoint_converter.py  # from Hugging Face to pretrained/"
        )
    return tuple(lines)


def _notes(run: Run, place: TrainingPlace) -> tuple[str, ...]:
    notes = [
        "training_orchestrator.py is in the examples of aws-neuron/neuronx-distributed-training; run it from there",
        "replace the text in < > with values of the model's config.json",
        "data/ holds a tokenized Hugging Face dataset in sequences of the run's length",
    ]
    if run.recipe.method != "full" or place.continued:
        notes.append("the model must be one that NxD Training has: Llama, Mistral or Mixtral")
    return tuple(notes)


def neuron_values(run: Run, place: TrainingPlace) -> dict[str, Any]:
    """Keys of conf/plan.yaml."""
    p = run.parallel
    values: dict[str, Any] = {
        "name": "plan",
        "model_source": "hf",
        "seed": SEED,
        "trainer": {
            "devices": place.processes_per_host,
            "num_nodes": place.hosts,
            "max_epochs": -1,
            "max_steps": place.steps(run),
            "log_every_n_steps": 10,
            "val_check_interval": place.steps(run) + 1,
            "check_val_every_n_epoch": None,
            "num_sanity_val_steps": 0,
            "limit_val_batches": 0.0,
            "limit_test_batches": 0.0,
            "gradient_clip_val": CLIP_NORM,
        },
        "exp_manager": _experiment(run, place),
        "distributed_strategy": {
            "tensor_model_parallel_size": p.tp,
            "pipeline_model_parallel_size": p.pp,
            "virtual_pipeline_model_parallel_size": p.virtual_stages,
            "context_parallel_size": p.cp,
            "zero1": p.zero == 1,
            "sequence_parallel": p.sequence_parallel,
            "kv_replicator": 1,
        },
        "data": {
            "micro_batch_size": run.micro_batch,
            "global_batch_size": run.micro_batch * run.micro_batches * p.dp,
            "train_dir": "data",
        },
        "model": _model(run, place),
        "precision": {"type": _precision(run.recipe)},
        "compiler_flags": "--model-type transformer",
        "compiler_cache_url": "neuron_cache",
    }
    return values | _alignment(run.recipe)


def _experiment(run: Run, place: TrainingPlace) -> dict[str, Any]:
    values: dict[str, Any] = {
        "explicit_log_dir": "checkpoints",
        "create_tensorboard_logger": True,
        "resume_if_exists": True,
        "resume_ignore_no_checkpoint": True,
        "create_checkpoint_callback": True,
        "checkpoint_callback_params": {
            "monitor": "step",
            "mode": "max",
            "save_top_k": 2,
            "save_last": False,
            "filename": "plan--{step}-{consumed_samples}",
            "model_parallel_size": run.parallel.tp * run.parallel.pp,
            "every_n_train_steps": place.checkpoint_steps(),
        },
        "save_xser": True,
        "load_xser": True,
        "async_checkpointing": True,
    }
    return values | ({"resume_from_checkpoint": "pretrained"} if place.continued else {})


def _model(run: Run, place: TrainingPlace) -> dict[str, Any]:
    steps = place.steps(run)
    values: dict[str, Any] = {
        "model_config": f"{CONFIG}/config.json",
        "encoder_seq_length": run.sequence_tokens,
        "max_position_embeddings": run.sequence_tokens,
        "num_layers": LAYERS,
        "hidden_size": WIDTH,
        "qkv_linear": True,
        "fuse_qkv": True,
        "use_cpu_initialization": True,
        "weight_init_only": place.continued,
        "activations_checkpoint_granularity": None if run.recompute == "none" else run.recompute,
        "fusions": {"softmax": True, "flash_attention": run.parallel.cp == 1, "ring_attention": run.parallel.cp > 1},
        "optim": {
            "name": "adamw_fp32OptState" if run.recipe.state_bytes >= 8 else "adamw",
            "lr": place.learning_rate(run),
            "weight_decay": WEIGHT_DECAY,
            "capturable": False,
            "betas": [0.9, 0.95],
            "sched": {
                "name": "CosineAnnealing",
                "warmup_steps": min(WARMUP_STEPS, max(steps // 10, 1)),
                "max_steps": steps,
                "min_lr": place.last_learning_rate(run),
                "constant_steps": 0,
            },
        },
    }
    if run.recompute == "selective":
        values["activations_checkpoint_recompute"] = ["CoreAttention"]
    return values


def _precision(r: Recipe) -> str:
    if r.autocast:
        return "autocast"
    return "mixed_precision" if r.master_bytes else "bf16SR"


def _alignment(r: Recipe) -> dict[str, Any]:
    if r.method == "full":
        return {}
    peft = {
        "lora_rank": r.adapter_rank,
        "lora_alpha": 2 * r.adapter_rank,
        "lora_dropout": DROPOUT_FRACTION if r.adapter_dropout else 0.0,
        "lora_bias": "none",
        "target_modules": MATRICES,
    }
    return {"model_alignment_strategy": {"sft": {"packing": True}, "peft": peft}}
