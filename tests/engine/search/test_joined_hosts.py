"""A replica spans hosts only under a framework that documents it, and only the others say so when nothing fits."""

from dataclasses import replace

from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, enumerate_lanes, holds_replica
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


def test_a_replica_spans_rented_instances_only_over_a_network_that_the_provider_is_known_to_have():
    boxes = replace(offer("box", 2.0), acquisition="rent")
    joined, bought = replace(boxes, fabric_accelerators=64), replace(boxes, acquisition="own")
    assert [holds_replica(BOX, o, 1, 2) for o in (boxes, joined, bought)] == [False, True, True]
    assert all(holds_replica(BOX, o, 1, 1) for o in (boxes, joined, bought))
    assert holds_replica(replace(BOX, chips_per_host=4), replace(boxes, accelerators=4), 2, 2), "in one instance"
    (alone,) = search(Question(question(variants="no"), JOINING)).rejections
    assert alone.detail.startswith("no offer connects enough chips for a layout that fits; costed at")
    (fast,) = search(Question(question(variants="no"), replace(JOINING, offers=(joined,)))).rejections
    assert fast.reason == "misses_slo" and "PP4" in fast.detail
