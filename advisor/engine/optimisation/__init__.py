"""Optimization advice for the chosen deployment: techniques, formats, frameworks, pitfalls, roofline."""

from advisor.engine.optimisation import plan
from advisor.engine.optimisation.ablation import ablation_steps, estimate_steps
from advisor.engine.optimisation.formats import (
    Bounds,
    CacheAdvice,
    FormatAdvice,
    cache_advice,
    cache_setups,
    format_advice,
    format_setups,
    made_on,
)
from advisor.engine.optimisation.frameworks import FrameworkComparison, compare_frameworks, framework_setups
from advisor.engine.optimisation.pitfalls import pitfalls
from advisor.engine.optimisation.plan import OptimisationPlan, Setup, SetupEstimate
from advisor.engine.optimisation.roofline import Roofline, roofline_of
from advisor.engine.optimisation.training_plan import stability_notes, technique_steps
