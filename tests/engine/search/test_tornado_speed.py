"""What would change the winner by speed: more load never makes a contender faster, as it keeps its replicas."""

from dataclasses import replace

import numpy as np

from advisor.engine.search import Question
from advisor.engine.search.certainty.sensitivity import contenders_of, replicas_needed
from advisor.engine.search.run import search
from tests.engine.catalog_sample import catalog, question


def test_by_latency_a_contender_keeps_the_replicas_that_make_it_fast():
    asked = question(variants="no", objective="latency", requests_per_s_mean=24.0, requests_per_s_peak=60.0)
    answer = search(Question(asked, catalog()))
    assert answer.table is not None
    field = contenders_of(asked, answer.table, answer.ranked)
    replicas, tpot_s = replicas_needed(asked, field)
    assert np.array_equal(replicas, field.replicas)
    for times in (1.02, 1.1, 1.25):
        busier, slower_s = replicas_needed(replace(asked, requests_per_s_peak=60.0 * times), field)
        assert np.all(busier >= replicas)
        assert np.all(slower_s >= tpot_s) and np.all(slower_s < 1.1 * tpot_s)
    by_cost, _ = replicas_needed(replace(asked, objective="cost"), field)
    assert np.all(by_cost < replicas)
