from rest_framework.routers import SimpleRouter

from probes import api

router = SimpleRouter(trailing_slash=False)
router.register("agents", api.Agents, basename="api-agent")
router.register("probe-jobs", api.Jobs, basename="api-probe-job")
router.register("probe-results", api.Results, basename="api-probe-result")
router.register("calibrations", api.Calibrations, basename="api-calibration")
router.register("enrolments", api.Enrolments, basename="api-enrolment")

urlpatterns = router.urls
