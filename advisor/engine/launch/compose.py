"""The replicas of one host as a Docker Compose file, for a host that neither Kubernetes nor systemd looks after."""

from typing import Any

from advisor.engine.launch.kubernetes import FOLDER, PORT, Served, image_of, printable, yaml_text

STARTS_WITHIN = "3600s"  # an hour to fetch, load and compile, as in the pod's startup probe
DRIVER = "driver"  # key of an accelerator's container: Compose reserves single chips through it
DEVICE_EACH = "device_each"  # one device file for each chip, numbered from 0


def compose(served: Served) -> str:
    """YAML of the replicas that one host takes (NVIDIA: each with its own chips and port; others: one).

    Empty where the server's health address is not known: Compose would call a server sound that is still loading.
    """
    if not served.health_path or not (served.accelerator.kind == "cpu" or served.accelerator.container):
        return ""
    count = on_this_host(served)
    services = {f"replica-{i + 1}": _service(served, i) for i in range(count)}
    head = f"{count} of {served.replicas} replicas on this host, {served.chips} x {printable(served.accelerator.name)}"
    document: dict[str, Any] = {"services": services, "volumes": {"hugging-face": {}}}
    return f"# {head} each; docker compose up --detach\n{yaml_text(document)}"


def on_this_host(served: Served) -> int:
    """Replicas that share a host; where a container cannot be given single chips, one."""
    a = served.accelerator
    if DRIVER not in a.container:
        return 1
    return max(min(served.replicas, a.instances if a.cut else a.chips_per_host // served.chips), 1)


def _service(served: Served, index: int) -> dict[str, Any]:
    words = [f"{FOLDER}/{word}" if word in served.files else word for word in served.words]
    words = [word.replace("$", "$$") for word in words]  # or Compose would put variables in
    run = {"command": words[1:]} if served.image_has_entrypoint else {"entrypoint": words}
    chips = _chips(served, index)
    files = [
        {"type": "bind", "source": f"./{name}", "target": f"{FOLDER}/{name}", "read_only": True}
        for name in served.files
    ]
    health = f"http://127.0.0.1:{PORT}{served.health_path}"
    return {
        "image": image_of(served),
        **run,
        **chips,
        # without a value: taken from the shell or from .env beside this file, and never written here
        "environment": {"HF_TOKEN": None, **chips.get("environment", {})},
        "ports": [f"{PORT + index}:{PORT}"],
        "ipc": "host",
        "volumes": [{"type": "volume", "source": "hugging-face", "target": "/root/.cache/huggingface"}, *files],
        "healthcheck": {
            "test": ["CMD", "curl", "--fail", "--silent", health],
            "interval": "10s",
            "retries": 6,
            "start_period": STARTS_WITHIN,
        },
        "restart": "unless-stopped",
    }


def _chips(served: Served, index: int) -> dict[str, Any]:
    a = served.accelerator
    if a.kind == "cpu":
        return {}
    if DRIVER in a.container:
        ids = [f"0:{index}"] if a.cut else [str(index * served.chips + i) for i in range(served.chips)]
        wanted = {"driver": a.container[DRIVER], "device_ids": ids, "capabilities": ["gpu"]}
        return {"deploy": {"resources": {"reservations": {"devices": [wanted]}}}}
    if DEVICE_EACH in a.container:
        return {"devices": [f"{a.container[DEVICE_EACH]}{i}" for i in range(served.chips)]}
    return dict(a.container)
