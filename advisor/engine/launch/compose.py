"""A Docker Compose file for the replicas of one host."""

from typing import Any

from advisor.engine.launch.kubernetes import FOLDER, PORT, ReplicaSpec, image_of, printable, yaml_text

STARTS_WITHIN = "3600s"  # one hour to download, load and compile, as in the pod's startup probe
DRIVER = "driver"  # key in an accelerator's `container`: Compose reserves individual chips through this driver
DEVICE_EACH = "device_each"  # key: path prefix of one device file per chip, numbered from 0


def compose(replica: ReplicaSpec) -> str:
    """YAML of the replicas on one host (several with their own chips and port on NVIDIA, otherwise one).

    Empty if the health path is unknown, because Compose would report a loading server as healthy.
    """
    if not replica.health_path or not (replica.accelerator.kind == "cpu" or replica.accelerator.container):
        return ""
    count = on_this_host(replica)
    services = {f"replica-{i + 1}": _service(replica, i) for i in range(count)}
    chips = f"{replica.chips} x {printable(replica.accelerator.name)}"
    head = f"{count} of {replica.replicas} replicas on this host, each on {chips}"
    document: dict[str, Any] = {"services": services, "volumes": {"hugging-face": {}}}
    return f"# {head}; start with: docker compose up --detach\n{yaml_text(document)}"


def on_this_host(replica: ReplicaSpec) -> int:
    """Replicas on one host; 1 if containers cannot reserve individual chips."""
    a = replica.accelerator
    if DRIVER not in a.container:
        return 1
    return max(min(replica.replicas, a.instances if a.cut else a.chips_per_host // replica.chips), 1)


def _service(replica: ReplicaSpec, index: int) -> dict[str, Any]:
    argv = [f"{FOLDER}/{word}" if word in replica.files else word for word in replica.argv]
    argv = [word.replace("$", "$$") for word in argv]  # otherwise Compose substitutes variables
    run = {"command": argv[1:]} if replica.image_has_entrypoint else {"entrypoint": argv}
    chips = _chips(replica, index)
    files = [
        {"type": "bind", "source": f"./{name}", "target": f"{FOLDER}/{name}", "read_only": True}
        for name in replica.files
    ]
    health = f"http://127.0.0.1:{PORT}{replica.health_path}"
    return {
        "image": image_of(replica),
        **run,
        **chips,
        # no value: taken from the shell or .env, so the token is never written to this file
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


def _chips(replica: ReplicaSpec, index: int) -> dict[str, Any]:
    a = replica.accelerator
    if a.kind == "cpu":
        return {}
    if DRIVER in a.container:
        ids = [f"0:{index}"] if a.cut else [str(index * replica.chips + i) for i in range(replica.chips)]
        wanted = {"driver": a.container[DRIVER], "device_ids": ids, "capabilities": ["gpu"]}
        return {"deploy": {"resources": {"reservations": {"devices": [wanted]}}}}
    if DEVICE_EACH in a.container:
        return {"devices": [f"{a.container[DEVICE_EACH]}{i}" for i in range(replica.chips)]}
    return dict(a.container)
