"""An agent as the tests play it: the protocol's calls through Django's test client."""

from typing import Any

from django.test import Client

from probes.agent.server import signing
from probes.machines import agents
from tests.probes import samples

HEADERS = {"Agent-Protocol": "2"}


class FakeAgent:
    def __init__(
        self, name: str = "gpu-1", token: str = "", labels: dict[str, str] | None = None, *, trusted: bool = False
    ) -> None:
        self.http = Client()
        self.name = name
        self.token, self.key = token, "0" * 64
        self.leases: dict[tuple[str, int], dict[str, Any]] = {}
        if not token:
            enrolment, _ = agents.enrol(labels or {}, trusted=trusted)
            answer = self.register(enrolment)
            assert answer.status_code == 201, answer.content
            self.takes(answer.json())

    def takes(self, given: dict[str, Any]) -> None:
        self.token, self.key, self.pk = given["token"], given["signing_key"], given["agent_id"]

    def proof(self, enrolment: str) -> str:
        return signing.of_registration(self.key, samples.digest(self.name.encode()), enrolment)

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
        asked = {"capabilities": {"backend": "cuda", **capabilities}, "agent_version": "1.0.0"}
        answer = self.post("lease", asked)
        if answer.status_code == 200:
            given = answer.json()
            self.leases[given["job_id"], given["attempt"]] = given
        return answer

    def heartbeat(self, job: str, attempt: int, **values: Any) -> Any:
        return self.post(f"jobs/{job}/heartbeat", {"attempt": attempt, "stage": "gemm", **values})

    def fail(self, job: str, attempt: int, retriable: bool = True, log: str = "out of memory") -> Any:
        path = f"jobs/{job}/attempts/{attempt}/fail"
        return self.post(path, {"code": "crashed", "retriable": retriable, "log": log})

    def signature(self, job: str, attempt: int, body: bytes, /, **changes: Any) -> str:
        """For the lease that this agent had."""
        given = self.leases.get((job, attempt))
        return samples.signature(self.key, given, body, **changes) if given else "v1=" + "0" * 64

    def send(self, job: str, attempt: int, body: bytes, digest: str = "", signature: str | None = None) -> Any:
        signed = self.signature(job, attempt, body) if signature is None else signature
        headers = {**self.headers(), "Idempotency-Key": digest or samples.digest(body)}
        headers |= {signing.HEADER: signed} if signed else {}
        path = f"/api/agent/v1/jobs/{job}/attempts/{attempt}/result"
        return self.http.put(path, body, content_type="application/json", headers=headers)
