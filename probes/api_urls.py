from rest_framework.routers import SimpleRouter

from probes.api import views

router = SimpleRouter(trailing_slash=False)
router.register("agents", views.Agents, basename="api-agent")
router.register("probe-jobs", views.Jobs, basename="api-probe-job")
router.register("probe-results", views.Results, basename="api-probe-result")
router.register("calibrations", views.Calibrations, basename="api-calibration")
router.register("enrolments", views.Enrolments, basename="api-enrolment")

urlpatterns = router.urls
