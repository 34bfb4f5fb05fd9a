"""quantization_config, as each quantization tool writes it."""

import pytest

from advisor.engine.network.checkpoint import checkpoint


def weights(bits, kind="int", size=None):
    return {"num_bits": bits, "type": kind, "group_size": size}


def scheme(stored, inputs=None):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": stored, "input_activations": inputs}},
    }


@pytest.mark.parametrize(
    ("given", "stored", "grouping", "activations"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", "groups of 128", ""),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, "int3", "", ""),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4", "groups of 64", ""),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "blocks of 128 x 128", "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4", "groups of 32", ""),
        ({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}, "nf4", "groups of 64", ""),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", "", "int8"),
        (scheme(weights(8, "float"), weights(8, "float")), "fp8", "", "fp8"),
        (scheme(weights(8), weights(8)), "int8", "", "int8"),
        (scheme(weights(4, "int", 32)), "int4", "groups of 32", ""),
        (scheme(weights(4, "float", 16), weights(4, "float", 16)), "nvfp4", "groups of 16", "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "groups of 16", "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8", "", "fp8"),
    ],
)  # fmt: skip
def test_a_method_is_understood(given, stored, grouping, activations):
    found = checkpoint({"quantization_config": given})
    assert found is not None
    assert (found.weights_dtype, found.grouping, found.activations_dtype) == (stored, grouping, activations)


def test_the_cache_dtype_and_unquantized_layers_are_read():
    given = scheme(weights(8, "float")) | {"kv_cache_scheme": weights(8, "float"), "ignore": ["lm_head"]}
    found = checkpoint({"quantization_config": given})
    assert found is not None and (found.kv_dtype, found.unquantized_layers) == ("fp8", ("lm_head",))


def test_no_quantization_is_no_checkpoint():
    assert checkpoint({"model_type": "llama"}) is None


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown quant_method 'magic'"):
        checkpoint({"quantization_config": {"quant_method": "magic"}})
