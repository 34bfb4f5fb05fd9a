"""What is started for encoders: the pooling servers, and encoder-decoders with room for their sources."""

from dataclasses import replace

import pytest
import yaml

from advisor.engine.launch.command import launch
from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.media.encoder import normalize
from advisor.engine.terms.workloads.kinds import EMBEDDING
from advisor.engine.terms.workloads.workload import Lengths, Slo
from tests.engine.catalog_sample import VLLM, catalog, question, software
from tests.engine.hf_configs import CONFIGS
from tests.engine.network.test_model_seq2seq import FLAN_XXL, WHISPER

T5, SPEECH = from_hf_config(FLAN_XXL, "t5"), from_hf_config(WHISPER, "whisper")
BERT = from_hf_config(CONFIGS["google-bert/bert-large-uncased"], "bert")
MIXERS = ("attention", "encoder", "cross-attention", "speech")


def started(slug, model, **asked):
    framework = replace(VLLM, slug=slug, name=slug, **software(slug), mixers=MIXERS, features=("embedding",))
    workload = replace(question(slo=Slo(e2e_p95_s=30.0)), **asked)
    answer = search(Question(workload, catalog(model=model, frameworks=(framework,))))
    workload, model = normalize(workload, model)
    return launch("the/model", answer.ranked[0], model, workload)


def follows(command, flag):
    words = command.split()
    return words[words.index(flag) + 1]


@pytest.mark.parametrize(
    ("slug", "flags"),
    [("vllm", "--runner pooling"), ("sglang", "--is-embedding"), ("llama.cpp", "--embedding")],
)
def test_an_encoder_is_started_to_make_vectors(slug, flags):
    length = Lengths(mean_tokens=256, p95_tokens=400)
    command = started(slug, BERT, kind=EMBEDDING, input_tokens=length)["command"]
    assert flags in command
    length = {"vllm": "--max-model-len", "sglang": "--context-length"}.get(slug)
    assert length is None or follows(command, length) == "512"  # the model's own limit
    assert slug != "llama.cpp" or follows(command, "--ubatch-size") == "8192"  # a prompt is computed in one piece


def test_whisper_is_started_with_its_decoders_length():
    spoken = {
        "input_tokens": Lengths(mean_tokens=1500, p95_tokens=1500),
        "output_tokens": Lengths(mean_tokens=200, p95_tokens=400),
    }
    command = started("vllm", SPEECH, **spoken)["command"]
    assert command.startswith("vllm serve the/model") and follows(command, "--max-model-len") == "448"
    assert "pooling" not in command


@pytest.mark.parametrize(("model", "source"), [(T5, 1280), (SPEECH, 1500)])
def test_tensorrt_llm_divides_its_cache_between_source_and_answer(model, source):
    lengths = {
        "input_tokens": Lengths(mean_tokens=400, p95_tokens=700),
        "output_tokens": Lengths(mean_tokens=200, p95_tokens=400),
    }
    found = started("tensorrt-llm", model, **lengths)
    options = yaml.safe_load(found["files"]["trtllm-options.yaml"])
    assert options["max_input_len"] == source and options["enable_chunked_prefill"] is False
    assert 0.5 < options["kv_cache_config"]["cross_kv_cache_fraction"] < 1
    assert int(follows(found["command"], "--max_seq_len")) >= source


def test_text_generation_inference_takes_the_source_as_its_input():
    command = started("tgi", T5, input_tokens=Lengths(mean_tokens=400, p95_tokens=700))["command"]
    assert follows(command, "--max-input-tokens") == "1280"
    assert int(follows(command, "--max-total-tokens")) == 1280 + 512
