"""How to run the chosen deployment better: techniques, formats, frameworks, pitfalls."""

from advisor.engine.optimisation import plan
from advisor.engine.optimisation.ablation import reached, stairs
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
from advisor.engine.optimisation.frameworks import Rival, rival_setups, rivals
from advisor.engine.optimisation.pitfalls import pitfalls
from advisor.engine.optimisation.plan import Measured, OptimisationPlan, Setup
from advisor.engine.optimisation.roofline import Lesson, lesson

__all__ = [
    "Bounds",
    "CacheAdvice",
    "FormatAdvice",
    "Lesson",
    "Measured",
    "OptimisationPlan",
    "Rival",
    "Setup",
    "cache_advice",
    "cache_setups",
    "format_advice",
    "format_setups",
    "lesson",
    "made_on",
    "pitfalls",
    "plan",
    "reached",
    "rival_setups",
    "rivals",
    "stairs",
]
