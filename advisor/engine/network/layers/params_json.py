"""Mistral's own params.json in the keys of config.json.

Names as vLLM maps them (vllm/transformers_utils/configs/mistral.py at 01da88c5).
"""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
NAMES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads", "hidden_dim": "intermediate_size", "tied_embeddings": "tie_word_embeddings",
    "activation": "hidden_act",
}  # fmt: skip
EXPERT_NAMES = {
    "num_experts": "n_routed_experts", "expert_hidden_dim": "moe_intermediate_size",
    "num_shared_experts": "n_shared_experts", "num_expert_groups": "n_group", "route_every_n": "moe_layer_freq",
}  # fmt: skip
TOWERS = {"dim": "d_model", "n_layers": "encoder_layers", "hidden_dim": "encoder_ffn_dim"}
NO_SIZE = ("expert_parallel", "expert_model_parallel", "num_expert_groups_per_tok")
CONTEXT_TOKENS = 128_000  # if params.json states none


def is_params_json(config: Config) -> bool:
    """Whether this is a params.json."""
    return "model_type" not in config and {"dim", "n_layers"} <= set(config)


def as_config(params: Config) -> dict[str, Any]:
    """The same facts in the keys of config.json. ValueError: its quantization is not known."""
    config: dict[str, Any] = {NAMES.get(name, name): value for name, value in params.items() if name not in SECTIONS}
    experts = dict(params.get("moe") or {})
    config |= {str(EXPERT_NAMES.get(name, name)): value for name, value in experts.items() if name not in NO_SIZE}
    config["model_type"] = model_type(config)
    config.setdefault("max_position_embeddings", CONTEXT_TOKENS)
    if isinstance(window := params.get("sliding_window"), list):
        repeats = config["num_hidden_layers"] // len(window)
        config["layer_types"] = ["sliding_attention" if each else "full_attention" for each in window] * repeats
        config["sliding_window"] = next((each for each in window if each), None)
    if quantization := params.get("quantization"):
        config["quantization_config"] = quantization_of(quantization)
    return config | towers_of(params)


SECTIONS = ("moe", "quantization", "vision_encoder", "multimodal", "yarn", "llama_4_scaling")


def model_type(config: Config) -> str:
    """The architecture whose layers these are."""
    if config.get("kv_lora_rank"):
        return "deepseek_v3" if config.get("n_routed_experts") else "mistral4"
    return "mixtral" if config.get("n_routed_experts") else "mistral"


def quantization_of(stated: Config) -> dict[str, Any]:
    """quantization_config of what params.json states."""
    if stated.get("qformat_weight") == "fp8_e4m3":
        return {"quant_method": "fp8"}
    if stated.get("quant_method") or stated.get("config_groups"):
        return {**stated, "quant_method": str(stated.get("quant_method", "compressed-tensors")).replace("_", "-")}
    raise ValueError(f"params.json: unknown quantization {dict(stated)}; known: qformat_weight fp8_e4m3, config_groups")


def towers_of(params: Config) -> dict[str, Any]:
    """Sections of the towers of images and of sound."""
    several = params.get("multimodal") or {}
    vision = params.get("vision_encoder") or several.get("vision_encoder_args")
    speech = (several.get("whisper_model_args") or {}).get("encoder_args")
    sections = {}
    if vision:
        sections["vision_config"] = dict(vision)
    if speech:
        sections["audio_config"] = {TOWERS.get(name, name): value for name, value in speech.items()}
    return sections
