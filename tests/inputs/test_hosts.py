"""The host around a chip: a whole computer needs none, and a passively cooled card a server that can cool it."""

import numpy as np
import pytest

from advisor.engine.search import efficiency_on
from advisor.engine.step import Choice, Lane, lanes, runs_on
from advisor.engine.terms import overhead
from advisor.inputs import catalog_chip, catalog_resources, market, usual_host_watts
from catalog.models import Accelerator

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
DEVICES = "jetson-agx-orin-64gb jetson-agx-thor-128gb apple-m4-max npu-phone-flagship npu-laptop-40tops gb10-dgx-spark"


@pytest.mark.parametrize("slug", DEVICES.split())
def test_a_whole_computer_has_no_server_around_it(slug: str) -> None:
    chip = catalog_chip(Accelerator.objects.get(slug=slug))
    found, assumed = market(chip)
    assert usual_host_watts(chip, assumed) == 0
    assert all(o.purchase_usd <= 10_000 for o in found if o.acquisition == "own")


def test_a_bought_device_draws_the_power_of_the_device() -> None:
    thor, _ = market(catalog_chip(Accelerator.objects.get(slug="jetson-agx-thor-128gb")))
    owned = [(o.full_watts, o.purchase_usd) for o in thor if o.acquisition == "own"]
    assert owned and set(owned) <= {(130, 3499), (130, 3500)}
    assert catalog_chip(Accelerator.objects.get(slug="jetson-agx-orin-64gb")).watts == 60


@pytest.mark.parametrize("slug", ["h200-nvl", "h100-pcie", "l40s", "rtx-pro-6000-blackwell-server"])
def test_server_cards_are_bought_in_servers_with_a_sourced_price_and_a_wide_range(slug: str) -> None:
    found, assumed = market(catalog_chip(Accelerator.objects.get(slug=slug)))
    bought = [o for o in found if o.instance.startswith("GPU server with")]
    for o in bought:
        cards = o.purchase_usd - assumed.card_server_usd - o.accelerators * assumed.card_server_usd_per_card
        assert cards > 0 and o.purchase_usd - cards > 5 * 4_500 - 1
        assert o.purchase_low_usd < o.purchase_usd - 9_000 and o.purchase_high_usd > o.purchase_usd + 15_000
        assert o.host_watts_per_accelerator is not None and o.host_watts_per_accelerator > 181
    assert bought or not [o for o in found if o.acquisition == "own"]
    assert not [o for o in found if "workstation" in o.instance]


def test_usable_memory_is_never_more_than_the_chip_has() -> None:
    """A 70B model in 16 bits: it fits on few chips, and what is usable must hold where it does not fit as well."""
    known = catalog_resources(["meta-llama/Llama-3.3-70B-Instruct"])
    (model,) = known.models.values()
    bf16 = next(q for q in known.quantizations if q.slug == "bf16")
    wanted = [
        Lane(
            choice=Choice(
                accelerator=a,
                efficiency=efficiency_on(known.scopes, a),
                overhead=overhead(known.scopes, f.slug, f.version, a.family),
                quantization=bf16,
                kv_dtype="bf16",
            ),
            framework=f,
            context_tokens=4096,
            max_batched_tokens=f.default_max_batched_tokens,
            max_running_requests=f.max_running_requests,
        )
        for a in known.accelerators.values()
        for f in known.frameworks
        if runs_on(f, a)
    ]
    memory = lanes(model, wanted).memory
    capacity = [w.choice.accelerator.memory_bytes for w in wanted]
    assert len({w.choice.accelerator.slug for w in wanted}) > 80 and 0 < memory.fits.sum() < len(wanted)
    assert (memory.usable_bytes <= np.array(capacity) * (1 + 1e-12)).all()
    assert "rtx-4090" in {w.choice.accelerator.slug for w in wanted if w.framework.memory_policy == "free"}
