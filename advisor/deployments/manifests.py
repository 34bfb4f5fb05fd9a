"""Kubernetes manifests, rendered charts, Compose files, Slurm and shell scripts: which servers they start, on what."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from advisor.deployments.flags import (
    OPTIONS,
    SERVERS,
    command_of,
    expanded,
    framework_of_image,
    settings_of,
    speculation,
    words_of,
)
from advisor.deployments.records import DeploymentError, Json, Record, Settings, tail

MOST_ALIASES = 30  # aliases inside merged mappings multiply
MOST_LEVELS = 60
MOST_OBJECTS = 500
MOST_LINE = 20_000
DEVICE = re.compile(r"(?:^|\.com/|\.ai/|/)(?:gpu|gaudi|tpu|neuron\w*|npu|mig-\S+|xpu\S*|i915)$|^huawei\.com/")
PRODUCT = re.compile(
    r"gpu[.-]product|accelerator|gpu\S*/(?:model|class|name)|gpu-(?:name|model|type)|instance-type", re.IGNORECASE
)
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/env")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[Any]:
    """The documents of a YAML text. DeploymentError: it is not plain YAML, or has too many levels or aliases."""
    level = aliases = 0
    try:
        for event in yaml.parse(text, Loader):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if level > MOST_LEVELS or aliases > MOST_ALIASES:
                what = f"{MOST_LEVELS} levels" if level > MOST_LEVELS else f"{MOST_ALIASES} aliases"
                raise DeploymentError(f"has YAML with more than {what}")
        return list(yaml.load_all(text, Loader))  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        hint = "; render the chart first (helm template)" if "{{" in text else ""
        raise DeploymentError(f"is not valid YAML{line}: {error.problem}{hint}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise DeploymentError(f"is not valid YAML: {str(error)[:100]}") from None


@dataclass(frozen=True, slots=True)
class Around:
    """What the objects around a container say about it."""

    name: str = ""
    replicas: int | None = None
    size: int = 1  # pods of one replica
    product: str = ""
    devices: int | None = None
    model: str = ""
    role: str = ""
    settings: Settings = Settings()


def read_manifest(content: Any, source: str) -> list[Record]:
    """The servers in the documents of a manifest. DeploymentError: there is none."""
    objects = [o for each in content for o in _flat(each)][:MOST_OBJECTS]
    files = {
        str(name): text
        for o in objects if o.get("kind") == "ConfigMap"
        for name, text in _map(o.get("data")).items() if isinstance(text, str)
    }  # fmt: skip
    found = []
    for o in objects:
        kind = str(o.get("kind") or "services" if isinstance(o.get("services"), dict) else o.get("kind") or "values")
        name = str(_map(o.get("metadata")).get("name") or o.get("name") or "")
        where = f"{source}: {kind} {name}".rstrip()
        if isinstance(o.get("services"), dict) and "kind" not in o:
            found += _compose(o["services"], where)
        elif kind not in ("ConfigMap", "Secret", "Service"):
            found += [replace(r, source=where) for r in _walk(o, Around(name=name, role=_role(name)), files, 0)]
    if not found:
        kinds = ", ".join(dict.fromkeys(str(o.get("kind") or "a mapping") for o in objects)) or "nothing"
        raise DeploymentError(
            f"starts no inference server that Assay knows ({', '.join(OPTIONS)}): it has {kinds[:200]}"
        )
    return _once(found)


def _flat(node: Any) -> Iterator[Json]:
    """Objects, also those of a List."""
    if isinstance(node, dict):
        items = node.get("items")
        if isinstance(items, list) and str(node.get("kind", "")).endswith("List"):
            for item in items:
                yield from _flat(item)
        else:
            yield node


def _map(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, dict) else {}


def _whole(value: Any) -> int | None:
    match = re.fullmatch(r"\d{1,6}", str(value).strip()) if not isinstance(value, bool) else None
    return int(match[0]) if match else None


def _walk(node: Any, around: Around, files: Mapping[str, str], level: int) -> Iterator[Record]:
    """The servers of all pods below a node."""
    if level > MOST_LEVELS or not isinstance(node, dict | list):
        return
    if isinstance(node, list):
        for each in node:
            yield from _walk(each, around, files, level + 1)
        return
    around = _around(node, around)
    containers = (
        [c for c in node["containers"] if isinstance(c, dict)] if isinstance(node.get("containers"), list) else []
    )
    containers += [  # one by itself, such as mainContainer and runner
        c for c in node.values() if isinstance(c, dict) and "image" in c and ("command" in c or "args" in c)
    ]
    servers = [r for c in containers if (r := _container(c, around, files)) is not None]
    model = node.get("model")
    if isinstance(model, dict) and ("modelFormat" in model or "storageUri" in model):  # KServe
        inner = _around(model, around)
        image = str(model.get("image") or "huggingfaceserver")
        servers += [r for r in [_container({**model, "image": image}, inner, files)] if r]
    elif isinstance(model, dict) and "uri" in model and not _map(node.get("template")).get("containers"):
        servers.append(_record(Settings(framework="vllm"), around))
    if isinstance(node.get("engine_kwargs"), dict):  # Ray Serve LLM
        settings, unknown = settings_of(node["engine_kwargs"], OPTIONS["vllm"], "vllm")
        loading = _map(node.get("model_loading_config"))
        settings = Settings(model=_text(loading.get("model_source") or loading.get("model_id")),
                            served_name=_text(loading.get("model_id"))).over(settings)  # fmt: skip
        servers.append(
            _record(settings, replace(around, product=str(node.get("accelerator_type") or around.product)), unknown)
        )
    if isinstance(node.get("modelURL"), str) and (
        "requestGPU" in node or "vllmConfig" in node
    ):  # values of vLLM's production stack
        servers.append(_values(node, around))
    if isinstance(model, dict) and isinstance(model.get("modelURL"), str):  # VLLMRuntime of the same stack's operator
        config, placed = _map(node.get("vllmConfig")), _map(node.get("deploymentConfig"))
        gpu, named = _map(placed.get("resources")).get("gpu"), _text(_map(placed.get("image")).get("name"))
        values = {"modelURL": model["modelURL"], "requestGPU": gpu, "vllmConfig": {**model, **config}}
        values |= dict(zip(("repository", "_", "tag"), named.rpartition(":"), strict=True))
        servers.append(_values(values, _around(placed, around)))
    yield from servers
    if isinstance(node.get("serveConfigV2"), str):
        yield from _walk(documents(node["serveConfigV2"]), around, files, level + 1)
    for key, inner in node.items():
        if key in ("initContainers", "containers", "mainContainer", "metadata", "status", "workerTemplate", "worker"):
            continue
        if isinstance(inner, dict | list):
            role = _role(str(key)) or around.role
            yield from _walk(inner, replace(around, role=role), files, level + 1)


def _role(name: str) -> str:
    """prefill or decode, where the name of a pool says it: prefill, vllm-decode, VllmPrefillWorker."""
    match = re.search(r"(?:^|[-_.])(prefill|decode)(?:[-_.\d]|$)|(Prefill|Decode)Worker", name)
    return (match[1] or match[2]).lower() if match else ""


def _around(node: Mapping[str, Any], before: Around) -> Around:
    replicas = next((n for k in ("replicas", "minReplicas", "replicaCount", "min_replicas", "num_replicas")
                     if (n := _whole(node.get(k))) is not None), before.replicas)  # fmt: skip
    model = _map(node.get("model"))
    uri = _text(node.get("storageUri") or model.get("storageUri") or model.get("uri")) or before.model
    parallel = _map(node.get("parallelism"))
    settings = Settings(
        tp=_whole(parallel.get("tensor")), pp=_whole(parallel.get("pipeline")), dp=_whole(parallel.get("data")),
        expert_parallel=True if parallel.get("expert") is True else None,
        speculative=speculation(_map(_map(node.get("speculator")).get("config"))),
    )  # fmt: skip
    return replace(
        before,
        replicas=replicas,
        size=_whole(_map(node.get("leaderWorkerTemplate")).get("size"))
        or (_whole(parallel.get("data")) or 0) // (_whole(parallel.get("dataLocal")) or 10**6)
        or (1 if parallel else before.size),
        product=_product(node) or before.product,
        devices=_devices(node) or before.devices,
        model=uri,
        settings=settings.over(Settings() if parallel else before.settings),
    )


def _product(node: Mapping[str, Any]) -> str:
    """The accelerator that a pod's node has to have, as its label writes it."""
    labels: list[tuple[Any, Any]] = list(_map(node.get("nodeSelector")).items())
    required = _map(
        _map(_map(node.get("affinity")).get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    terms = required.get("nodeSelectorTerms")
    for term in terms if isinstance(terms, list) else ():
        expressions = _map(term).get("matchExpressions")
        for e in expressions if isinstance(expressions, list) else ():
            values = _map(e).get("values")
            if _map(e).get("operator") == "In" and isinstance(values, list) and len(values) == 1:
                labels.append((_map(e).get("key"), values[0]))
    found = [
        str(value) for key, value in labels if PRODUCT.search(str(key)) and str(value).lower() not in ("true", "gpu")
    ]
    return found[0][:100] if found else ""


def _devices(node: Mapping[str, Any]) -> int | None:
    resources = _map(node.get("resources"))
    for side in ("limits", "requests"):
        for name, count in _map(resources.get(side)).items():
            if DEVICE.search(str(name)) and (whole := _whole(count)):
                return whole
    return None


def _text(value: Any, longest: int = 300) -> str:
    return str(value)[:longest] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _environment(node: Any) -> dict[str, str]:
    pairs = (
        [(e.get("name"), e.get("value")) for e in node if isinstance(e, dict)] if isinstance(node, list)
        else list(_map(node).items())
    )  # fmt: skip
    if isinstance(node, list):
        pairs += [each.partition("=")[::2] for each in node if isinstance(each, str)]
    return {str(name): _text(value) for name, value in pairs if name and value is not None}


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return words_of(value)
    return [_text(each, MOST_LINE) for each in value] if isinstance(value, list) else []  # one may be a whole script


def _container(c: Mapping[str, Any], around: Around, files: Mapping[str, str]) -> Record | None:
    of_kserve = around.model and c.get("name", "main") in ("main", "kserve-container")  # which adds image and command
    image = str(c.get("image") or ("vllm" if of_kserve else ""))
    variables = _environment(c.get("env") or c.get("environment"))
    image = expanded(image, variables)
    started = [*_words(c.get("command") or c.get("entrypoint")), *_words(c.get("args"))]
    if started[:1] and started[0] not in SHELLS:  # all arguments in one text
        one = (words_of(w) if STARTS.search(w) or re.match(r"-.* --?[a-z]", w) else [w] for w in started)
        started = [word for words in one for word in words]
    around = replace(_around(c, around), devices=_devices(c) or around.devices)
    framework, version = framework_of_image(image)
    for i, word in enumerate(started):
        script = next((text for name, text in files.items() if word.endswith(f"/{name}") or word == name), "")
        if script or (started[0] in SHELLS and i and (" " in word.strip() or "\n" in word)):
            servers = commands_in(script or word, variables)
            if servers:
                settings, unknown = servers[0]
                return _record(settings.over(Settings(version=version)), around, unknown)
    if started and started[0] in SHELLS:  # it starts something else, or what another file says
        started = []
    extra = words_of(variables.get("VLLM_ADDITIONAL_ARGS", "")) if framework in ("vllm", None) else []
    if framework == "tgi":
        extra += [w for k, v in variables.items() if k.lower() in OPTIONS["tgi"] for w in (f"--{k.lower()}", v)]
    if not started and not extra and not around.model:
        return None
    found = command_of([*started, *extra], image, variables)
    if found is None or not (found.settings.model or around.model or around.settings.model):
        return None
    return _record(found.settings.over(Settings(version=version)), around, found.unknown)


def _record(settings: Settings, around: Around, unknown: Sequence[str] = ()) -> Record:
    if settings.model and "$" in settings.model:  # a variable that nothing here sets
        settings = replace(settings, model=settings.served_name or settings.model)
    model = around.model.removeprefix("hf://") if not settings.model or settings.model.startswith("/mnt/") else ""
    stated = Settings(model=model or None).over(settings) if model else settings
    if around.role:
        stated = replace(stated, prefill_or_decode=around.role)
    whole = Settings(
        accelerator=around.product or None,
        accelerators=around.devices * around.size if around.devices else None,
        replicas=around.replicas,
    )
    settings = stated.over(around.settings).over(whole)
    notes = ("replicas is 0 in the manifest: an autoscaler decides",) if settings.replicas == 0 else ()
    settings = replace(settings, replicas=settings.replicas or None)
    called = names(settings)
    if around.role == "prefill":  # a pool of its own
        called = tuple(f"{name} (prefill)" for name in called)
    return Record(kind="manifest", source="", settings=settings, unknown=tuple(unknown), notes=notes, names=called)


def names(settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tail(n) for n in (settings.model, settings.served_name) if n and "{" not in n))


def _values(node: Mapping[str, Any], around: Around) -> Record:
    config = _map(node.get("vllmConfig"))
    _, version = framework_of_image(f"{node.get('repository')}:{node.get('tag')}")
    given = {re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", str(k)): v for k, v in config.items() if k != "extraArgs"}
    given = {k: v for k, v in given.items() if k in OPTIONS["vllm"]}
    more = command_of(["vllm", "serve", *_words(config.get("extraArgs"))])
    settings, _ = settings_of(given, OPTIONS["vllm"], "vllm", version)
    settings = (more.settings if more else Settings()).over(settings)
    devices = _whole(node.get("requestGPU")) or around.devices
    return _record(
        Settings(model=_text(node["modelURL"])).over(settings),
        replace(around, devices=devices),
        more.unknown if more else (),
    )


def _compose(services: Mapping[str, Any], where: str) -> list[Record]:
    found = []
    for name, service in services.items():
        deploy = _map(_map(service).get("deploy"))
        reserved = _map(_map(deploy.get("resources")).get("reservations")).get("devices")
        device = _map(next(iter(reserved), None)) if isinstance(reserved, list) else {}
        ids = device.get("device_ids")
        around = Around(
            name=str(name), replicas=_whole(deploy.get("replicas")),
            devices=len(ids) if isinstance(ids, list) and ids else _whole(device.get("count")),
        )  # fmt: skip
        c = {**_map(service), "args": _map(service).get("command"), "command": _map(service).get("entrypoint")}
        if _map(service) and (record := _container(c, around, {})) is not None:
            found.append(replace(record, source=f"{where} {name}"))
    return found


def _once(records: Sequence[Record]) -> list[Record]:
    """Records with the same settings are replicas."""
    found: list[Record] = []
    for record in records:
        same = next(
            (
                i
                for i, r in enumerate(found)
                if replace(r.settings, replicas=None) == replace(record.settings, replicas=None)
            ),
            None,
        )
        if same is None:
            found.append(record)
        else:
            count = (found[same].settings.replicas or 1) + (record.settings.replicas or 1)
            found[same] = replace(found[same], settings=replace(found[same].settings, replicas=count))
    return found


# --- Slurm and shell ----------------------------------------------------------------------------------------------

SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-C": "--constraint"}
ASSIGNED = re.compile(
    r"^\s*(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)?|Environment=\"?)*([A-Za-z_]\w*)(\+?=)"
    r"(\"[^\"]*\"|'[^']*'|\([^()]*\)|[^\s;#\"']*)\"?\s*(?:[;#].*)?$",
)
OPENED = re.compile(r"^\s*(?:export\s+|local\s+)*[A-Za-z_]\w*\+?=(?:\([^()]*|\"[^\"]*)$")  # closed on a later line
MOST_JOINED = 200  # lines of one value
STARTS = re.compile(
    r"vllm serve|vllm\.entrypoints|sglang\.launch_server|sglang serve|trtllm-serve|text-generation-launcher|"
    r"huggingfaceserver|lmdeploy serve|"
    r"dynamo\.(?:vllm|sglang)|/vllm-openai|lmsysorg/sglang|text-generation-inference"
)
IMAGE = re.compile(r"\S*(?:/vllm-openai|vllm-openai_|lmsysorg/sglang|text-generation-inference)\S*")


def starts_server(text: str) -> bool:
    return bool(STARTS.search(text))


def commands_in(text: str, variables: Mapping[str, str]) -> list[tuple[Settings, tuple[str, ...]]]:
    """(settings, unknown options) of each server that a shell text starts."""
    known = dict(variables)
    found = []
    for line in _lines(text):
        if match := ASSIGNED.match(line):
            value = _filled(re.sub(r"\s+", " ", match[3].strip("\"'()")).strip(), known)
            value = expanded(value, known)
            known[match[1]] = f"{known.get(match[1], '')} {value}".strip() if match[2] == "+=" else value
            continue
        if line.lstrip().startswith("#"):
            continue
        line = _filled(line, {name: v for name, v in known.items() if " " in v or IMAGE.fullmatch(v)})
        if len(line) <= MOST_LINE and STARTS.search(line):
            found += _servers_of(line, known)
    if not found:  # a command in a variable that another program starts
        found = [server for value in known.values() if STARTS.search(value) for server in _servers_of(value, known)]
    return found


def _lines(text: str) -> Iterator[str]:
    """Lines of a script; a line that goes on, and a value over several lines, are one."""
    opened: list[str] = []
    for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        if not opened and not OPENED.match(line):
            yield line
            continue
        opened.append(
            line.split(" #")[0] if opened and not line.lstrip().startswith("#") else line if not opened else ""
        )
        closes = ")" if "(" in opened[0].split("=", 1)[1][:1] else '"'
        if len(opened) > 1 and closes in opened[-1] or len(opened) > MOST_JOINED:
            yield " ".join(opened)
            opened = []
    yield from opened


def _servers_of(line: str, known: Mapping[str, str]) -> list[tuple[Settings, tuple[str, ...]]]:
    found = []
    for part in re.split(r"\s(?:&&|\|\||;)\s|;\s", re.sub(r"^(?:ExecStart|Exec)=", "", line)):
        words = words_of(part)
        words = [w for word in words for w in (words_of(word) if " " in word and STARTS.search(word) else [word])]
        image = next((word for word in words if IMAGE.fullmatch(word)), "")
        explicit = any(re.search(rf"(?:^|(?<= )){pattern}", " ".join(words)) for pattern, _, _ in SERVERS)
        command = command_of(words if explicit else words[words.index(image) + 1 :] if image else words, image, known)
        if command is None or not command.settings.model:
            continue
        devices = re.search(r"(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=([\d,]+)|--gpus\W{0,4}device=([\d,]+)", part)
        number = re.search(r"--gpus[= ](\d{1,3})(?= )", part) if image else None
        seen = (devices[1] or devices[2]) if devices else known.get("CUDA_VISIBLE_DEVICES", "")
        count = int(number[1]) if number else len(seen.strip(",").split(",")) if re.fullmatch(r"[\d,]+", seen) else None
        version = framework_of_image(image)[1] if image else None
        found.append((command.settings.over(Settings(accelerators=count, version=version)), command.unknown))
    return found


def _filled(text: str, known: Mapping[str, str]) -> str:
    """A text with the variables that are known; also all of an array, ${NAME[@]}, with or without quotes."""
    filled = re.sub(
        r"\"?\$\{(\w+)\[[@*]\]\}\"?|\$(?:\{(\w+)\}|(\w+))",
        lambda m: known.get(m[1] or m[2] or m[3], m[0]), text[:MOST_LINE],
    )  # fmt: skip
    return filled[:MOST_LINE]


GPUS = {"--gres", "--gpus-per-node", "--gpus-per-task", "--gpus"}


def _stated(line: str) -> str:
    return line.strip().removeprefix("#SBATCH").split(" #")[0]


def _slurm(text: str) -> dict[str, str]:
    """The first value of each option."""
    words, found = words_of(text), dict[str, str]()
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if match := re.fullmatch(r"(--[\w-]+)(?:=(.*))?|(-[A-Za-z])(.*)", word):
            value = match[2] if match[1] else match[4]
            name = match[1] or SHORT.get(match[3], match[3])
            found.setdefault(name, (value or ("" if following.startswith("-") else following)).strip(" \t\"'"))
    return found


def read_script(text: str, source: str) -> list[Record]:
    """The servers of a Slurm or shell script. DeploymentError: it starts none."""
    header = _slurm(" ".join(_stated(line) for line in text.splitlines() if line.lstrip().startswith("#SBATCH")))
    if not GPUS & header.keys():  # the job asks for no accelerators, its steps do
        header = _slurm(" ".join(re.findall(r"^\s*srun\s.*", text, re.MULTILINE)[:20])) | header
    nodes = _whole(re.split(r"[-:]", header.get("--nodes", ""))[0]) or 1
    kind, per_node, total = "", None, None
    for name in ("--gres", "--gpus-per-node", "--gpus-per-task", "--gpus"):
        if match := re.search(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d{1,4})", header.get(name, "").removeprefix("gpu:")):
            kind, count = match[1] or kind, int(match[2])
            total = count if name == "--gpus" else None
            per_node = count if name != "--gpus" else None
            if name == "--gpus-per-task":
                per_node = count * (_whole(header.get("--ntasks-per-node")) or 1)
            break
    total = total or (per_node * nodes if per_node else None)
    variables = {
        "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_ON_NODE": per_node,
        "SLURM_GPUS_PER_NODE": per_node, "SLURM_NTASKS": header.get("--ntasks"), "SLURM_GPUS": total,
    }  # fmt: skip
    image = re.search(r"^Image=(\S+)", text, re.MULTILINE)  # a container unit of systemd
    text = re.sub(r"^Exec=(?=-)", f"Exec={image[1]} ", text, flags=re.MULTILINE) if image else text
    servers = commands_in(text, {name: str(value) for name, value in variables.items() if value})
    if not servers:
        raise DeploymentError(
            "starts no inference server that Assay knows: no line has vllm serve, sglang.launch_server, trtllm-serve, "
            "text-generation-launcher or lmdeploy serve with a model"
        )
    named = [each for each in re.split(r"[&|,\[\]()]", header.get("--constraint", "")) if each]
    constraint = next((each for each in named if re.search(r"\d", each)), "")
    accelerator = kind or constraint or None
    records = []
    for settings, unknown in servers:
        ranks = (settings.tp or 1) * (settings.pp or 1) * (1 if settings.dp_attention else settings.dp or 1)
        of_job = total if len(servers) == 1 else None
        settings = settings.over(Settings(accelerator=accelerator, accelerators=of_job))
        notes = []
        if of_job and ranks < of_job and settings.tp:
            notes.append(f"the job has {of_job} accelerators, and the server's tp, pp and dp use {ranks}")
            settings = replace(settings, accelerators=ranks)
        records.append(
            Record(
                kind="script",
                source=source,
                settings=settings,
                unknown=unknown,
                notes=tuple(notes),
                names=names(settings),
            )
        )
    return _once(records)
