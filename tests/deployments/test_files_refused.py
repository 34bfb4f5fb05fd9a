"""Whatever a file has, it is read or refused with one sentence that names it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.deployments import DeploymentError, Given, grouped, read_files
from advisor.deployments.records import joined

SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())
BOMB = "a: &a [x, x]\n" + "".join(
    f"{k}: &{k} [{', '.join([f'*{j}'] * 9)}]\n" for j, k in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{k}: &{k} {{<<: [{', '.join([f'*{j}'] * 9)}]}}\n" for j, k in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "": "is empty",
    "hello": "is none of these",
    "\x00\x01": "is not text",
    "kind: Service\nmetadata: {name: a}\n": "starts no inference server that Assay knows",
    "kind: {{ .Values.kind }}\nspec: {{- toYaml .Values }}\n": "helm template",
    f"kind: Pod\n{BOMB}": "more than 30 aliases",
    f"kind: Pod\n{MERGES}": "more than 30 aliases",
    "kind: Pod\nspec: " + "[" * 100 + "]" * 100: "more than 60 levels",
    "kind: Pod\nspec: !!python/object/apply:os.system [ls]\n": "not valid YAML at line 2",
    "kind: Pod\nspec: [\n": "not valid YAML at line",
    "#!/bin/sh\necho hello\n": "starts no inference server",
    "vllm:num_requests_running{model_name=\"a\" 1\n": "line 1 is not a Prometheus sample",
    "vllm:num_requests_running{model_name=\"a\"} one\n": "line 1 is not a Prometheus sample",
    "vllm:cache_config_info{block_size=\"16\"} 1.0\n": "neither requests nor tokens",
    '{"a": 1}': "is refused: This is not a result of vllm bench serve",
    '{"request_throughput": 1, "total_input_tokens": 1, "completed": NaN}': "completed",
    '{"request_throughput": Infinity, "total_input_tokens": 1, "completed": 1}': "request_throughput is 'inf'",
    "[1, 2]": "neither an object nor a list of objects",
    '{"a": ' + "[" * 100: "nested too deeply",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED.items(), ids=[text[:30] or "empty" for text in REFUSED])
def test_what_is_none_is_refused_with_its_reason(text: str, said: str) -> None:
    with pytest.raises(DeploymentError, match=r"^file-1 ") as refused:
        read_files([Given("file-1", text.encode())])
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_too_many_and_too_large_files_are_refused() -> None:
    with pytest.raises(DeploymentError, match="At most 20 files"):
        read_files([Given("a", b"x")] * 21)
    with pytest.raises(DeploymentError, match="larger than 4 MiB"):
        read_files([Given("a", b"x" * (5 * 2**20))])
    with pytest.raises(DeploymentError, match="not UTF-8"):
        read_files([Given("a", b"\xff\xfe\x00")])


def all_read(content: bytes) -> None:
    try:
        records = read_files([Given("f", content, 1e9)])
    except DeploymentError as error:
        assert str(error).startswith("f ")
        return
    for group in grouped(records):
        found = joined(group)
        assert found.settings.as_json() is not None and found.seen.as_json() is not None


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
@given(data=st.data())
def test_cut_and_changed_files(path: Path, data: st.DataObject) -> None:
    content = path.read_bytes()
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
    odd = data.draw(
        st.sampled_from([b"", b"\x00", b"NaN", b"{", b"'", b"-1", b"1e999", "٣".encode(), b"[" * 70, b"\n", b"$("])
    )
    all_read(content[:start] + odd + content[end:])
    all_read(content[:start])


@given(text=st.text(alphabet=st.sampled_from("vllm:serve{}[]=\"' \n-&*!|>1.e+#$()\\"), max_size=200))
def test_any_text(text: str) -> None:
    for start in (
        "",
        "vllm serve a ",
        "kind: Pod\nspec: ",
        "vllm:num_requests_running",
        "#SBATCH ",
        "non-default args: {",
    ):
        all_read((start + text).encode())


LONG = [
    "non-default args: {" * 20_000, "EngineCore_DP0 " * 30_000 + "GPU KV cache size: x", "Load weight end." * 30_000,
    "vllm serve a " + "'" * 100_000, "vllm serve a " + "/" * 300_000,
    "=" * 300_000 + " Benchmark Result =" + "(" * 300_000,
    "#SBATCH" + " " * 300_000 + "x\nvllm serve a", "vllm:num_requests_running{" + 'a="b",' * 50_000 + "} 1",
    "with config: " + "a={" * 100_000, "vllm serve a\n" + "A=" + " " * 300_000 + "x",
]  # fmt: skip


@pytest.mark.parametrize("text", LONG, ids=[text[:20] for text in LONG])
@pytest.mark.timeout(120)
def test_no_text_takes_long(text: str) -> None:
    all_read(text.encode())  # a pattern that looks everywhere again takes hours
