"""An agent as the tests play it: the protocol's calls through Django's test client."""

from typing import Any

from django.test import Client

from probes import agents
from tests.probes import samples

HEADERS = {"Agent-Protocol": "1"}


class FakeAgent:
    def __init__(self, name: str = "gpu-1", token: str = "", labels: dict[str, str] | None = None) -> None:
        self.http = Client()
        self.name = name
        self.token = token
        if not token:
            enrolment, _ = agents.enrol(labels or {})
            answer = self.register(enrolment)
            assert answer.status_code == 201, answer.content
            self.token, self.pk = answer.json()["token"], answer.json()["agent_id"]

    def register(self, enrolment: str, **changes: Any) -> Any:
        body = {
            "enrolment_token": enrolment,
            "install_id": samples.digest(self.name.encode()),
            "agent_version": "1.0.0",
            "name": self.name,
            "labels": {},
            "inventory": {"device": samples.H200, "backend": "cuda"},
            **changes,
        }
        return self.post("register", body)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.http.post(
            f"/api/agent/v1/{path}", body, content_type="application/json", headers={**self.headers(), **headers}
        )

    def headers(self) -> dict[str, str]:
        return {**HEADERS, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}

    def lease(self, **capabilities: Any) -> Any:
        return self.post("lease", {"capabilities": {"backend": "cuda", **capabilities}, "agent_version": "1.0.0"})

    def heartbeat(self, job: str, attempt: int, **values: Any) -> Any:
        return self.post(f"jobs/{job}/heartbeat", {"attempt": attempt, "stage": "gemm", **values})

    def fail(self, job: str, attempt: int, retriable: bool = True, log: str = "out of memory") -> Any:
        path = f"jobs/{job}/attempts/{attempt}/fail"
        return self.post(path, {"code": "crashed", "retriable": retriable, "log": log})

    def send(self, job: str, attempt: int, body: bytes, digest: str = "") -> Any:
        headers = {**self.headers(), "Idempotency-Key": digest or samples.digest(body)}
        path = f"/api/agent/v1/jobs/{job}/attempts/{attempt}/result"
        return self.http.put(path, body, content_type="application/json", headers=headers)
