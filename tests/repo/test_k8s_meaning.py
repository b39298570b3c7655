"""What the objects of k8s/ say together: files, names, ports, sizes and times that must agree."""

import copy
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve_app.access.exposure import is_loopback
from serve_app.access.key_ring import KeyRing
from serve_app.check import check_text
from serve_app.settings import AppArgs, read_args
from tests.support.kube_rules import duration_s
from tests.support.kube_sizes import Need, needs, quantity, without_room
from tests.support.kustomize import (
    OVERLAYS,
    ROOT,
    Manifest,
    build,
    build_with_all,
    only,
    pod_specs,
)
from tools.drain import parser

PART_OF = {"app.kubernetes.io/part-of": "duplex"}
ON_GPUS = ("one-gpu", "two-gpu")


@dataclass(frozen=True, slots=True)
class Built:
    """One overlay, and what its deploy file says."""

    name: str
    manifests: list[Manifest]
    config: Manifest
    args: AppArgs

    @property
    def service(self) -> Manifest:
        return only("RayService", self.manifests)

    @property
    def pods(self) -> dict[str, Manifest]:
        return pod_specs(self.service)

    @property
    def group(self) -> Manifest:
        (group,) = self.service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        assert isinstance(group, dict)
        return group

    @property
    def deployments(self) -> dict[str, Manifest]:
        (app,) = self.config["applications"]
        return {deployment["name"]: deployment for deployment in app["deployments"]}


@pytest.fixture(scope="module", params=OVERLAYS)
def built(request: pytest.FixtureRequest) -> Built:
    """Build an overlay as it is."""
    manifests = build(ROOT / "k8s" / "overlays" / request.param)
    config = yaml.safe_load(only("RayService", manifests)["spec"]["serveConfigV2"])
    (app,) = config["applications"]
    return Built(request.param, manifests, config, read_args(app["args"]))


def container(pod: Manifest) -> Manifest:
    """Return the one container that we describe; the operator adds its own."""
    (one,) = pod["spec"]["containers"]
    assert isinstance(one, dict)
    return one


# --- the deploy file ---------------------------------------------------------------------------


def test_serve_and_our_own_check_take_the_deploy_file(built: Built) -> None:
    text = built.service["spec"]["serveConfigV2"]
    ServeDeploySchema.model_validate(built.config)
    assert check_text(text, {}) == []


@pytest.mark.parametrize(
    "path",
    [
        ("http_options",),
        ("applications", 0, "args", "limits", "max_sessions"),
        ("applications", 0, "args", "auth", "api_keys_file"),
        ("applications", 0, "deployments", 1, "graceful_shutdown_timeout_s"),
    ],
)
def test_a_misspelt_field_of_the_deploy_file_is_found(
    path: tuple[str | int, ...], built: Built
) -> None:
    config = copy.deepcopy(built.config)
    at: Any = config
    for step in path[:-1]:
        at = at[step]
    at[f"{path[-1]}x"] = at.pop(path[-1])
    faults = check_text(yaml.safe_dump(config), {"DUPLEX_API_KEYS": "k"})
    assert [fault for fault in faults if fault.path.endswith(f"{path[-1]}x")]


def leaves(tree: Any, at: str = "") -> dict[str, Any]:
    """Return every value of a tree by its path; things with a name are known by it."""
    match tree:
        case dict() if tree:
            pairs = [(str(name), value) for name, value in tree.items()]
        case [dict(), *_] if all("name" in one for one in tree):
            pairs = [(one["name"], one) for one in tree]
        case _:
            return {at: tree}
    return {
        path: leaf
        for name, value in pairs
        for path, leaf in leaves(value, f"{at}.{name}".lstrip(".")).items()
    }


def test_the_deploy_file_is_that_of_deploy_but_for_what_a_cluster_changes(built: Built) -> None:
    changes = yaml.safe_load(
        (ROOT / "k8s" / "overlays" / built.name / "serve_changes.yaml").read_text()
    )
    ours, here = leaves(yaml.safe_load((ROOT / changes["deploy_file"]).read_text())), built.config
    theirs = leaves(here)
    differing = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
    allowed = re.compile(
        r"http_options\.host|applications\.duplex\.args\.auth(\.(api|admin)_keys_file)?"
        r"|applications\.duplex\.deployments\.Stage[01]\.(num_replicas|autoscaling_config\..*)"
    )
    assert [path for path in sorted(differing) if not allowed.fullmatch(path)] == []
    assert "http_options.host" in differing


def test_nothing_limits_the_time_of_a_request(built: Built) -> None:
    assert "request_timeout_s" not in built.config["http_options"]


# --- keys --------------------------------------------------------------------------------------


def test_keys_are_required_and_come_from_a_mounted_secret(built: Built) -> None:
    assert not is_loopback(built.config["http_options"]["host"])
    file = built.args.auth.api_keys_file
    assert file is not None
    pod = built.pods["workers"]
    (mount,) = [m for m in container(pod)["volumeMounts"] if m["mountPath"] == str(file.parent)]
    assert mount["readOnly"]
    assert "subPath" not in mount  # such a mount never changes
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == mount["name"]]
    secret = yaml.safe_load((ROOT / "k8s" / "examples" / "api_keys.yaml").read_text())
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert list(secret["stringData"]) == [file.name]


def test_admin_keys_are_where_the_service_and_each_hook_look_for_them(built: Built) -> None:
    file = built.args.auth.admin_keys_file
    assert file is not None
    secret = yaml.safe_load((ROOT / "k8s" / "examples" / "admin_keys.yaml").read_text())
    assert list(secret["stringData"]) == [file.name]
    for pod in built.pods.values():
        (mount,) = [m for m in container(pod)["volumeMounts"] if m["mountPath"] == str(file.parent)]
        assert mount["readOnly"]
        (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        assert volume["secret"]["optional"]  # without it the service runs, and can not be drained
        assert f"--key-file={file}" in hook(pod)


@pytest.mark.parametrize("kind", ["api", "admin"])
def test_the_example_has_no_key_and_no_overlay_has_a_secret(
    kind: str, built: Built, tmp_path: Path
) -> None:
    secret = yaml.safe_load((ROOT / "k8s" / "examples" / f"{kind}_keys.yaml").read_text())
    (tmp_path / "keys").write_text(secret["stringData"][f"{kind}-keys"])
    assert KeyRing(file=tmp_path / "keys").is_empty
    assert "Secret" not in {manifest["kind"] for manifest in built.manifests}


def test_a_replaced_secret_is_read(tmp_path: Path) -> None:
    """Kubernetes writes a new folder beside the old one, and turns one link."""

    def mount(version: str, keys: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "api-keys").write_text(keys)
        (tmp_path / "new").symlink_to(version)
        (tmp_path / "new").rename(tmp_path / "..data")

    mount("..1", "old\n")
    (tmp_path / "api-keys").symlink_to("..data/api-keys")
    ring = KeyRing(file=tmp_path / "api-keys")
    assert ring.holds("old")
    mount("..2", "new\n")
    assert ring.holds("new")
    assert not ring.holds("old")


def environment(built: Built) -> Manifest:
    """Return the variables of all pods; the other ConfigMaps are dashboards."""
    maps = [each for each in built.manifests if each["kind"] == "ConfigMap"]
    [found] = [each for each in maps if each["metadata"]["name"].startswith("duplex-environment-")]
    return found


# --- time --------------------------------------------------------------------------------------


def test_everything_that_replaces_waits_longer_than_the_longest_call(built: Built) -> None:
    longest_s = built.args.session_limits().max_session_s
    assert longest_s is not None
    spec = built.service["spec"]
    assert spec["upgradeStrategy"]["type"] == "NewCluster"
    assert spec["rayClusterDeletionDelaySeconds"] > longest_s
    for deployment in built.deployments.values():
        assert deployment["graceful_shutdown_timeout_s"] >= longest_s
    variables = environment(built)["data"]
    assert float(variables["RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"]) > longest_s


def hook(pod: Manifest) -> list[str]:
    """Return what a pod runs before it goes."""
    command = container(pod)["lifecycle"]["preStop"]["exec"]["command"]
    assert isinstance(command, list)
    return command


def test_a_pod_drains_before_it_goes_and_has_the_time_for_it(built: Built) -> None:
    longest_s = built.args.session_limits().max_session_s
    assert longest_s is not None
    for name, pod in built.pods.items():
        assert pod["spec"]["terminationGracePeriodSeconds"] > longest_s
        python, dash_m, module, *options = hook(pod)
        assert (python, dash_m, module) == ("python", "-m", "tools.drain")
        read = parser().parse_args(options)
        # A worker may hold nothing of the service; a lost head takes all of it along.
        assert read.only_here is (name == "workers")
        assert read.url.endswith(f":{built.config['http_options']['port']}")
        assert read.within_s is None  # as long as the longest session


def test_a_head_that_calls_can_do_without_does_not_wait_for_them(
    built: Built, tmp_path: Path
) -> None:
    with_redis = pod_specs(only("RayService", build_with_all(built.name, tmp_path)))
    assert "lifecycle" not in container(with_redis["head"])
    assert hook(with_redis["workers"]) == hook(built.pods["workers"])


# --- processes ---------------------------------------------------------------------------------


def test_head_and_workers_read_the_same_variables(built: Built) -> None:
    name = environment(built)["metadata"]["name"]
    assert re.fullmatch(r"duplex-environment-[a-z0-9]{10}", name)
    sources = [container(pod)["envFrom"] for pod in built.pods.values()]
    assert sources == [[{"configMapRef": {"name": name}}]] * 2
    assert [pod for pod in built.pods.values() if "env" in container(pod)] == []


def test_probes_are_left_to_the_operator(built: Built) -> None:
    ours = {name for pod in built.pods.values() for name in container(pod)}
    assert {name for name in ours if name.endswith("Probe")} == set()


def test_one_image_of_this_version_and_of_this_ray(built: Built) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {container(pod)["image"] for pod in built.pods.values()}
    kind = "gpu" if built.name in ON_GPUS else "cpu"
    assert images == {f"registry.example.com/duplex:{version}-{kind}"}
    ray = built.service["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"\nray=={ray} " in (ROOT / "requirements" / "serve.lock").read_text()


def test_no_process_has_rights_that_it_does_not_need(built: Built) -> None:
    for pod in built.pods.values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        own = container(pod)["securityContext"]
        assert not own["allowPrivilegeEscalation"]
        assert own["capabilities"] == {"drop": ["ALL"]}
    assert built.pods["workers"]["spec"]["automountServiceAccountToken"] is False
    assert built.service["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "token"}


# --- sizes -------------------------------------------------------------------------------------


def replicas(built: Built, bound: str) -> dict[str, int]:
    """Return how many replicas of each deployment there are at least or at most."""
    return {
        name: one.get("autoscaling_config", {}).get(f"{bound}_replicas") or one["num_replicas"]
        for name, one in built.deployments.items()
    }


def room(built: Built) -> tuple[float, float]:
    """Return the processors and GPUs that Ray counts on a worker."""
    limits = container(built.pods["workers"])["resources"]["limits"]
    return quantity(limits["cpu"]), quantity(limits.get("nvidia.com/gpu", 0))


@pytest.mark.parametrize("bound", ["min", "max"])
def test_the_workers_have_room_for_the_replicas(bound: str, built: Built) -> None:
    needed = list(needs(built.args, replicas(built, bound)))
    assert len(needed) >= 3
    assert without_room(needed, built.group[f"{bound}Replicas"], *room(built)) == []


def test_one_worker_less_would_be_too_few(built: Built) -> None:
    needed = list(needs(built.args, replicas(built, "max")))
    assert without_room(needed, built.group["maxReplicas"] - 1, *room(built))


def test_what_finds_no_room_is_found() -> None:
    large, small = Need("a", 4.1, 0.6), Need("b", 2.1, 0.4)
    assert without_room([small, large], 1, 8, 1) == []
    assert without_room([small, large], 1, 6, 1) == [small]
    assert without_room([large, large], 1, 10, 1) == [large]


def test_requests_are_limits(built: Built) -> None:
    for pod in built.pods.values():
        resources = container(pod)["resources"]
        assert resources["requests"] == resources["limits"]
        assert {"cpu", "memory"} <= resources["limits"].keys()


def test_rays_objects_fit_into_shared_memory_and_that_into_the_container(built: Built) -> None:
    cluster = built.service["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], built.group):
        spec = group["template"]["spec"]
        (shared,) = [v["emptyDir"] for v in spec["volumes"] if v["name"] == "shared-mem"]
        assert shared["medium"] == "Memory"
        size = quantity(shared["sizeLimit"])
        assert quantity(group["rayStartParams"]["object-store-memory"]) < size
        memory = quantity(container(group["template"])["resources"]["limits"]["memory"])
        assert size <= memory / 2
        mounts = {m["name"]: m["mountPath"] for m in container(group["template"])["volumeMounts"]}
        assert mounts["shared-mem"] == "/dev/shm"


def test_no_replica_is_put_on_the_head(built: Built) -> None:
    cluster = built.service["spec"]["rayClusterConfig"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert built.service["spec"]["excludeHeadPodFromServeSvc"]


# --- scaling -----------------------------------------------------------------------------------


def test_stages_scale_before_they_are_full_where_workers_can_be_added(built: Built) -> None:
    scaling = {
        name: one["autoscaling_config"]
        for name, one in built.deployments.items()
        if "autoscaling_config" in one
    }
    cluster = built.service["spec"]["rayClusterConfig"]
    can_grow = built.group["maxReplicas"] > built.group["minReplicas"]
    assert (set(scaling) == {"Stage0", "Stage1"}) == can_grow == (built.name in ON_GPUS)
    assert cluster["enableInTreeAutoscaling"] is can_grow
    most = built.args.session_limits().max_sessions
    for config in scaling.values():
        assert most / 2 < config["target_ongoing_requests"] <= 0.7 * most
    # The autoscaler owns the count; an overlay that named one would set it back at each apply.
    assert "replicas" not in built.group


# --- checkpoint --------------------------------------------------------------------------------


def test_the_checkpoint_lies_on_a_mounted_volume(built: Built) -> None:
    if built.name not in ON_GPUS:
        assert built.args.model_settings == {}
        return
    pod = built.pods["workers"]
    claim = yaml.safe_load((ROOT / "k8s" / "examples" / "models.yaml").read_text())
    (volume,) = [v for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]
    assert volume["persistentVolumeClaim"] == {
        "claimName": claim["metadata"]["name"],
        "readOnly": True,
    }
    (mount,) = [m for m in container(pod)["volumeMounts"] if m["name"] == volume["name"]]
    folder = Path(mount["mountPath"])
    settings = built.args.model_settings
    assert Path(settings["checkpoint"]).is_relative_to(folder)
    assert Path(settings["voice"]["prompt"]).is_relative_to(folder)


# --- network -----------------------------------------------------------------------------------


def selected(selector: dict[str, str], pod: Manifest) -> bool:
    """Whether a selector takes a pod."""
    return bool(selector.items() <= pod["metadata"]["labels"].items())


def test_every_selector_takes_the_pods(built: Built) -> None:
    policies = [m for m in built.manifests if m["kind"] == "NetworkPolicy"]
    selectors = [p["spec"]["podSelector"]["matchLabels"] for p in policies]
    assert PART_OF in selectors
    # The operator gives the pods this label.
    assert {**PART_OF, "ray.io/node-type": "head"} in selectors
    budget = only("PodDisruptionBudget", built.manifests)
    assert budget["spec"]["selector"]["matchLabels"] == PART_OF
    for pod in built.pods.values():
        assert selected(PART_OF, pod)


def test_only_the_clients_port_is_open_to_all(built: Built) -> None:
    policies = [m for m in built.manifests if m["kind"] == "NetworkPolicy"]
    rules = [rule for policy in policies for rule in policy["spec"].get("ingress", [])]
    to_all = [rule["ports"] for rule in rules if "from" not in rule]
    assert to_all == [[{"protocol": "TCP", "port": built.config["http_options"]["port"]}]]


def test_every_port_that_a_rule_opens_is_one_of_the_pods(built: Built) -> None:
    agent = 52365  # Ray's own, on every node; the operator asks there how it goes
    ports = {p["containerPort"] for pod in built.pods.values() for p in container(pod)["ports"]}
    policy = next(m for m in built.manifests if m["kind"] == "NetworkPolicy")
    opened = {p["port"] for rule in policy["spec"]["ingress"] for p in rule.get("ports", [])}
    assert opened - {agent} <= ports


@pytest.fixture(scope="module", params=ON_GPUS)
def outside(request: pytest.FixtureRequest) -> Built:
    """Build an overlay that has a way in from outside."""
    manifests = build(ROOT / "k8s" / "overlays" / request.param)
    config = yaml.safe_load(only("RayService", manifests)["spec"]["serveConfigV2"])
    return Built(request.param, manifests, config, read_args(config["applications"][0]["args"]))


def rule_of(path: str, route: Manifest) -> Manifest | None:
    """Return the rule that takes a path."""
    for rule in route["spec"]["rules"]:
        for match in rule["matches"]:
            value = match["path"]["value"]
            is_prefix = match["path"]["type"] == "PathPrefix"
            if path == value or (is_prefix and path.startswith(value.rstrip("/") + "/")):
                assert isinstance(rule, dict)
                return rule
    return None


def test_a_conversation_has_no_time_limit_at_the_door(outside: Built) -> None:
    route = only("HTTPRoute", outside.manifests)
    source = (ROOT / "serve_app" / "gateway" / "api.py").read_text()
    sockets = set(re.findall(r'@api\.websocket\("(.*?)"\)', source))
    assert "/v1/realtime" in sockets
    for path in sockets - {"/v1/duplex"}:
        rule = rule_of(path, route)
        assert rule is not None, f"{path} does not come in"
        assert {duration_s(rule["timeouts"][n]) for n in ("request", "backendRequest")} == {0.0}


def test_the_page_comes_in_and_what_is_for_operators_does_not(outside: Built) -> None:
    route = only("HTTPRoute", outside.manifests)
    web = ROOT / "serve_app" / "web"
    files = [f"/{file.relative_to(web)}" for file in web.rglob("*") if file.is_file()]
    assert len(files) > 5
    come_in = ["/", *files, "/v1/realtime/client_secrets", "/v1/models", "/health"]
    assert [path for path in come_in if rule_of(path, route) is None] == []
    stay_out = ["/metrics", "/debug/timings", "/v1/duplex", "/admin/drain", "/-/routes", "/docs"]
    assert [path for path in stay_out if rule_of(path, route) is not None] == []


def test_the_route_leads_from_the_gateway_to_the_service(outside: Built) -> None:
    route, gateway = only("HTTPRoute", outside.manifests), only("Gateway", outside.manifests)
    assert route["spec"]["parentRefs"] == [{"name": gateway["metadata"]["name"]}]
    (listener,) = gateway["spec"]["listeners"]
    assert route["spec"]["hostnames"] == [listener["hostname"]]
    service = f"{outside.service['metadata']['name']}-serve-svc"
    port = outside.config["http_options"]["port"]
    ends = [ref for rule in route["spec"]["rules"] for ref in rule["backendRefs"]]
    assert [end for end in ends if end != {"name": service, "port": port}] == []


def test_prometheus_finds_the_ports_that_it_is_told(outside: Built) -> None:
    monitor = only("PodMonitor", outside.manifests)["spec"]
    assert monitor["selector"]["matchLabels"] == PART_OF
    head, worker = (
        {p["name"] for p in container(outside.pods[name])["ports"]} for name in ("head", "workers")
    )
    watched = {end["port"] for end in monitor["podMetricsEndpoints"]}
    assert watched <= head
    assert "metrics" in watched & worker


# --- fault tolerance ---------------------------------------------------------------------------


def test_the_head_can_keep_its_tables_in_redis(tmp_path: Path) -> None:
    manifests = build_with_all("cpu-trial", tmp_path)
    options = only("RayService", manifests)["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    port = int(options["redisAddress"].rpartition(":")[2])
    assert options["redisPassword"].keys() == {"valueFrom"}
    (policy,) = [m for m in manifests if m["metadata"]["name"] == "duplex-head"]
    opened = {p["port"] for rule in policy["spec"]["egress"] for p in rule.get("ports", [])}
    assert port in opened
