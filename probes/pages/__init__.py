"""The pages of workers, results and calibrations."""

from probes.pages import result_figures, views
