"""The suite through jax: every kind of the list, the same keys, and where jax is installed a run on this machine."""

import importlib.util
import sys
from typing import Any

import pytest

from probes.agent import axes, sandbox, spec
from probes.agent.xla import kinds, whole
from probes.agent.xla.device import JaxDevice
from probes.agent.xla.suite import cases_of, kernel_in
from tests.agent import stub_suite

HERE = importlib.util.find_spec("jax") is not None
RUN = """
import sys; sys.path.insert(0, {root!r})
from probes.agent import child
sys.exit(child.main())
"""


def device(backend: str, **more: Any) -> JaxDevice:
    given = {"jax": None, "name": "x", "memory_bytes": 140 << 30, "l2_bytes": 64 << 20, "count": 4, "fraction": 0.9}
    return JaxDevice(backend, **{**given, **more})


def test_every_kind_has_its_maker_and_no_other() -> None:
    assert set(kinds.KINDS).isdisjoint(whole.KINDS)
    assert {*kinds.KINDS, *whole.KINDS} == set(axes.KINDS)


@pytest.mark.parametrize("backend", ["cuda", "rocm", "xla", "cpu"])
@pytest.mark.parametrize("suite", ["quick", "full", "custom"])
def test_a_plan_names_every_case_once(backend: str, suite: str) -> None:
    for kind in axes.KINDS:
        found = cases_of(kind, suite, device(backend))
        keys = [tuple(sorted(case.key.items())) for case in found]
        assert found and len(set(keys)) == len(keys)
        assert {case.kind for case in found} == {kind}


def test_a_product_counts_its_flops_and_bytes() -> None:
    case = kinds.product("bf16", 3, "", 5, 7)
    assert (case.flops, case.bytes) == (2 * 3 * 5 * 7, 2 * (3 * 7 + 5 * 7 + 3 * 5))


@pytest.mark.parametrize(
    ("text", "path", "kernel"),
    [
        ('x = custom-call(y), custom_call_target="__cublas$lt$matmul$f8"', "native", "__cublas$lt$matmul$f8"),
        ('x = custom-call(y), custom_call_target="__cublas$gemm"', "reference", "__cublas$gemm"),
        ("x = fusion(convert(y))", "reference", "xla fusion"),
    ],
)
def test_only_a_librarys_fp8_call_counts_as_native(text: str, path: str, kernel: str) -> None:
    assert (kinds.fp8_path(text), kernel_in(text)) == (path, kernel)


@pytest.mark.skipif(HERE, reason="jax is installed")
def test_without_jax_the_agent_says_what_is_missing() -> None:
    outcome = sandbox.run({"ask": "facts", "spec": None, "library": "jax"}, sandbox.limits_for(60))
    assert outcome.code == "crashed" and "jax is not installed" in outcome.log


@pytest.mark.skipif(not HERE, reason="jax is not installed")
def test_kinds_run_and_their_checks_hold() -> None:
    asked = {"suite": "custom", "kinds": ["known_answer", "launch", "norm"], "max_s": 60, "max_bytes": None}
    child = (sys.executable, "-c", RUN.format(root=str(stub_suite.ROOT)))
    request = {"ask": "run", "spec": asked, "library": "jax"}
    outcome = sandbox.run(request, sandbox.limits_for(180), command=child)
    assert outcome.code == "ok", outcome.log
    document = outcome.answer
    assert (document["library"], document["spec_hash"]) == ("jax", spec.spec_hash(asked))
    assert {found["kind"] for found in document["results"]} == {"known_answer", "launch", "norm"}
    assert all(found["check"]["ok"] and found["time_s"]["median"] > 0 for found in document["results"])
