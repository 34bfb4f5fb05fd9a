"""A replica spans hosts only under a framework that documents it, and only the others say so when nothing fits."""

from dataclasses import replace

from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, enumerate_lanes
from advisor.engine.search.run import search
from tests.engine.catalog_sample import GIB, LLAMA_70B, VLLM, catalog, chip, offer, question

BOX = chip("box", memory_bytes=64 * GIB, links=(), chips_per_host=1)
PLAIN = catalog(
    model=LLAMA_70B, accelerators=(BOX,), offers=(offer("box", 2.0),), frameworks=(replace(VLLM, features=()),),
    quantizations=catalog().quantizations[:1],
)  # fmt: skip
JOINING = replace(PLAIN, frameworks=(VLLM,))


def stages(known) -> set[int]:
    asked = question()
    return {
        lane.choice.pp for lane in enumerate_lanes(Question(asked, known), admissible(Question(asked, known))[1])[0]
    }


def test_a_framework_that_documents_it_spreads_layers_over_boxes():
    assert stages(JOINING) == {1, 2, 4}
    assert stages(PLAIN) == {1}


def test_the_rejection_says_that_one_box_is_all_there_is():
    (why,) = search(Question(question(variants="no"), PLAIN)).rejections
    assert why.reason == "does_not_fit" and "multi-host" in why.detail
    assert all("multi-host" not in r.detail for r in search(Question(question(variants="no"), JOINING)).rejections)
