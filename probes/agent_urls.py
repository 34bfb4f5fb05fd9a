from django.urls import path

from probes import agent_api as api

urlpatterns = [
    path("register", api.Register.as_view(), name="agent-register"),
    path("lease", api.LeaseJob.as_view(), name="agent-lease"),
    path("token/rotate", api.RotateToken.as_view(), name="agent-rotate"),
    path("jobs/<uuid:pk>/heartbeat", api.Heartbeat.as_view(), name="agent-heartbeat"),
    path("jobs/<uuid:pk>/attempts/<int:attempt>/result", api.PutResult.as_view(), name="agent-result"),
    path("jobs/<uuid:pk>/attempts/<int:attempt>/fail", api.FailAttempt.as_view(), name="agent-fail"),
]
