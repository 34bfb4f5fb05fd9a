"""A pasted or uploaded config.json is shown for what it is, and kept where that is allowed."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from catalog.models import ServedModel
from tests.people import member

pytestmark = pytest.mark.django_db
PAGE = "/catalog/models/import"
QWEN = {
    "model_type": "qwen2", "hidden_size": 3584, "vocab_size": 152064, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 131072,
}  # fmt: skip


def send(client, status=200, **given):
    answer = client.post(PAGE, given)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def test_the_size_is_computed_and_set_beside_the_published_one(client):
    text = send(client, config=json.dumps(QWEN), published_parameters=7_615_616_512)
    assert text.count("7,615,616,512") == 3 and "0.00%" in text
    assert "28: not divisible" in text and "4: each replicated 2 times" in text
    assert not ServedModel.objects.exists()


def test_uneven_widths_are_named_for_each_family(client):
    text = send(client, config=json.dumps(QWEN | {"intermediate_size": 18900, "vocab_size": 50257}))
    assert "feed-forward 18,900" in text and "vocabulary 50,257" in text and "rows of padding" in text


def test_a_quantized_checkpoint_is_understood(client):
    quantized = QWEN | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    assert "awq: int4, groups of 128" in send(client, config=json.dumps(quantized))


def test_an_encoder_decoder_shows_both_caches(client):
    whisper = {"model_type": "whisper", "d_model": 1280, "vocab_size": 51866, "num_mel_bins": 128}
    whisper |= {"max_source_positions": 1500, "max_target_positions": 448}
    for side in ("encoder", "decoder"):
        whisper |= {f"{side}_layers": 32, f"{side}_attention_heads": 20, f"{side}_ffn_dim": 5120}
    text = send(client, config=json.dumps(whisper), published_parameters=1_543_490_560)
    assert "1,500 tokens" in text and "245,760,000 bytes" in text and "+0.01%" in text
    send(client, 302, config=json.dumps(whisper), name="whisper", keep="1")
    assert "32 layers of the encoder" in client.get("/catalog/models/whisper").content.decode()


def test_an_upload_is_read_and_kept(client):
    file = SimpleUploadedFile("config.json", json.dumps(QWEN).encode())
    assert "7,615,616,512" in send(client, upload=file)
    send(client, 302, config=json.dumps(QWEN), name="acme/Our-7B", keep="1", published_parameters=7_600_000_000)
    row = ServedModel.objects.get()
    assert (row.slug, row.hf_id, row.published_parameters) == ("acme-our-7b", "acme/Our-7B", 7_600_000_000)
    assert client.get("/catalog/models/acme-our-7b").status_code == 200


def test_a_model_that_is_there_is_not_overwritten(client):
    send(client, 302, config=json.dumps(QWEN), name="acme/Our-7B", keep="1")
    assert "already in the catalog" in send(client, 422, config=json.dumps(QWEN), name="acme/our 7B", keep="1")


def test_where_people_log_in_a_viewer_keeps_nothing(client, settings):
    settings.OPEN = False
    client.force_login(member("viewer", "viewer"))
    assert "Add to the catalog" not in send(client, 403, config=json.dumps(QWEN), name="m", keep="1")
    assert not ServedModel.objects.exists()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", "exactly one"),
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"model_type": "mystery"}', "unknown model_type"),
        ('{"model_type": "llama"}', "lacks"),
        (json.dumps(QWEN | {"num_hidden_layers": 10**9}), "number of layers"),
        (json.dumps(QWEN | {"hidden_size": 10**30}), "cannot be right"),
        (json.dumps(QWEN | {"hidden_size": 0}), "cannot be right"),
        (json.dumps(QWEN | {"hidden_size": "wide"}), "wide"),
        (json.dumps(QWEN | {"num_attention_heads": 0}), "zero"),
        (json.dumps(QWEN | {"max_position_embeddings": 10**12}), "cannot be right"),
        (json.dumps(QWEN | {"quantization_config": {"quant_method": "magic"}}), "unknown quant_method"),
        (json.dumps(QWEN | {"quantization_config": 7}), "config.json"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(client, config, words):
    assert words in send(client, 422, config=config)


def test_an_upload_that_is_not_text_is_refused(client):
    assert "not text" in send(client, 422, upload=SimpleUploadedFile("c", b"\xff\xfe\x00"))


def test_the_page_reads_the_format_beside_the_config(client):
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    text = send(client, config=json.dumps(QWEN), quantization=json.dumps(beside))
    assert "modelopt: nvfp4, groups of 16" in text
    mixed = {"quantization": {"quant_algo": "MIXED_PRECISION"}}
    assert "does not state the format of each" in send(
        client, 422, config=json.dumps(QWEN), quantization=json.dumps(mixed)
    )


def test_a_size_that_is_doubtful_is_shown_and_added_only_when_confirmed(client):
    given = {"config": json.dumps(QWEN), "name": "acme/Our-70B"}
    assert "7.62 B parameters were read, but the name &#x27;acme/Our-70B&#x27; says 70 B" in send(client, **given)
    assert "check “The size is right”" in send(client, 422, **given, keep="1")
    assert not ServedModel.objects.exists()
    send(client, 302, **given, keep="1", confirm_size="on")
    assert ServedModel.objects.get().slug == "acme-our-70b"


def test_a_size_that_is_not_the_published_one_is_added_only_when_confirmed(client):
    given = {"config": json.dumps(QWEN), "name": "acme/ours", "published_parameters": 9_000_000_000}
    assert "but 9.00 B are published" in send(client, 422, **given, keep="1")
    send(client, 302, **given, keep="1", confirm_size="on")


def test_an_unknown_size_is_named_on_the_page(client):
    text = send(client, 422, config=json.dumps(QWEN | {"moe_latent_size": 1024}))
    assert "moe_latent_size (1024)" in text


def test_numbers_that_are_not_json_are_read_and_too_many_values_are_not(client):
    text = json.dumps(QWEN)[:-1] + ', "time_step_limit": [0.0, Infinity]}'
    assert "7,615,616,512" in send(client, config=text)
    for other in ("[" * 100_000, '{"a": [' + "1," * 300_000 + "1]}"):
        send(client, 422, config=other)
