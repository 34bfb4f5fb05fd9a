from django.urls import path

from probes.pages import views
from probes.status import pages

urlpatterns = [
    path("agent.pyz", views.agent_file, name="agent-file"),
    path("status", pages.status, name="status"),
    path("workers", views.workers, name="workers"),
    path("workers/enrol", views.enrol, name="worker-enrol"),
    path("workers/queue", views.queue, name="worker-queue"),
    path("workers/results", views.result_list, name="probe-results"),
    path("workers/results/<int:pk>", views.result, name="probe-result"),
    path("workers/results/<int:pk>/release", views.release, name="probe-release"),
    path("workers/results/<int:pk>.json", views.result_json, name="probe-result-json"),
    path("workers/compare", views.compare, name="probe-compare"),
    path("workers/jobs/<uuid:pk>/cancel", views.cancel, name="probe-cancel"),
    path("workers/<int:pk>", views.worker, name="worker"),
    path("workers/<int:pk>/revoke", views.revoke, name="worker-revoke"),
    path("workers/<int:pk>/rotate", views.rotate, name="worker-rotate"),
    path("workers/<int:pk>/trust", views.trust, name="worker-trust"),
    path("workers/<int:pk>/approve/<int:claim>", views.approve, name="worker-approve"),
    path("workers/calibrations", views.calibration_list, name="probe-calibrations"),
    path("workers/calibrations/<int:pk>", views.calibration, name="probe-calibration"),
    path("workers/calibrations/<int:pk>/undo", views.undo, name="probe-calibration-undo"),
]
