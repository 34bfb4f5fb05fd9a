from django.urls import path

from probes.api import agent_views

urlpatterns = [
    path("register", agent_views.Register.as_view(), name="agent-register"),
    path("lease", agent_views.LeaseJob.as_view(), name="agent-lease"),
    path("token/rotate", agent_views.RotateToken.as_view(), name="agent-rotate"),
    path("jobs/<uuid:pk>/heartbeat", agent_views.Heartbeat.as_view(), name="agent-heartbeat"),
    path("jobs/<uuid:pk>/attempts/<int:attempt>/result", agent_views.PutResult.as_view(), name="agent-result"),
    path("jobs/<uuid:pk>/attempts/<int:attempt>/fail", agent_views.FailAttempt.as_view(), name="agent-fail"),
]
