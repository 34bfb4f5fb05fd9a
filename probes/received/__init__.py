"""Results as machines send them: parsed, checked for plausibility, stored and released."""

from probes.received import intake, plausibility, results
