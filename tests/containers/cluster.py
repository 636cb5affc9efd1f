"""Runs a Kubernetes cluster of two nodes, applies what lies in deploy/kubernetes, and checks what is promised of it.

scripts/containers --cluster starts this, in namespaces of its own; all that it starts ends with it.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from discovery import Discovery, as_v1beta1
from run import EXPIRED, HANDED_OVER, HERE, NO_ENGINE
from run import configure, eventually, get, image, leader, leads_on, must, podman, run, told

SERVER = "10.79.0.1"
NODES = {"one": ("10.79.0.11", "10.244.1.0/24"), "two": ("10.79.0.12", "10.244.2.0/24")}
SERVICES = "10.96.0.0/16"
DOMAIN = "cluster.local"

# Pods are created, pulled from nowhere, started and found ready on two processors that have much else to do.
SOON = 120

SLICE = "example-leader"
TOKEN_ANNOTATION = "bellwether.io/fencing-token"


def main(engine_root, base, binary, programs):
    root = Path(engine_root)
    configure(root)
    if subprocess.run(["podman", "info"], stdout=subprocess.DEVNULL, timeout=60).returncode != 0:
        sys.exit(NO_ENGINE)
    podman("import", base, "localhost/debian", limit=120)
    image(binary, root)
    podman("build", "--network=none", "--tag=docker.io/library/haproxy:3.0-alpine", str(HERE / "haproxy"))
    images = archive(root)
    cluster = Cluster(root / "cluster", Path(programs))
    try:
        cluster.start(images)
        for check in (servers, members, by_readiness, by_label, by_haproxy, by_endpoint_slice):
            since = time.monotonic()
            print(f"-- {check.__doc__}", flush=True)
            check(cluster)
            print(f"   took {time.monotonic() - since:.0f} s", flush=True)
    except BaseException:
        cluster.say()
        raise


def archive(root):
    """Returns the file with all images, by the names that the manifests have."""
    version = yaml.safe_load(Path("deploy/kubernetes/chart/Chart.yaml").read_text())["version"]
    podman("tag", f"localhost/bellwether:{version}", f"docker.io/library/bellwether:{version}")
    pause = root / "pause"
    pause.mkdir()
    shutil.copy("/usr/libexec/podman/catatonit", pause)
    (pause / "Containerfile").write_text('FROM scratch\nCOPY catatonit /\nENTRYPOINT ["/catatonit", "-P"]\n')
    podman("build", "--network=none", "--tag=localhost/pause:1", str(pause))
    names = ["localhost/pause:1", f"docker.io/library/bellwether:{version}", "docker.io/library/zookeeper:3.9.4"]
    names += ["docker.io/traefik/whoami:v1.11.0", "docker.io/library/haproxy:3.0-alpine"]
    podman("save", "--multi-image-archive", f"--output={root}/images.tar", *names, limit=300)
    return root / "images.tar"


# -- The cluster


class Cluster:
    def __init__(self, root, programs):
        self.root, self.programs, self.started = root, programs, {}
        root.mkdir()

    def start(self, images):
        self.make_certificates()
        self.make_networks()
        self.run_control_plane()
        threading.Thread(target=self.serve_names, daemon=True).start()
        group = self.root.parent.name
        for name, (address, pods) in NODES.items():
            place = self.root / name
            place.mkdir()
            script = ["bash", HERE / "node.sh", name, address, pods, f"{group}/{name}", place, self.programs, images]
            spaces = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts"]
            self.begin(f"node-{name}", *spaces, *script)
        _, took = eventually("both nodes are ready", lambda: len(self.nodes_ready()) == len(NODES), SOON)
        versions = {it["status"]["nodeInfo"]["kubeletVersion"] for it in self.get("/api/v1/nodes")["items"]}
        runtimes = {it["status"]["nodeInfo"]["containerRuntimeVersion"] for it in self.get("/api/v1/nodes")["items"]}
        told(f"two nodes are ready: kubelet {versions}, {runtimes}", took)

    def begin(self, name, *command):
        """Starts a program that goes on, with a log of its own."""
        with open(self.root / f"{name}.log", "w") as log:
            command = [str(it) for it in command]
            self.started[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def make_certificates(self):
        def openssl(*arguments):
            run("openssl", *(str(it) for it in arguments))

        self.authority = self.root / "ca.crt"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
        ca_key = self.root / "ca.key"
        openssl("req", "-x509", *key, "-days=2", "-subj=/CN=cluster", "-keyout", ca_key, "-out", self.authority)
        openssl("genrsa", "-out", self.root / "accounts.key", "2048")
        names = f"IP:{SERVER},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc"
        users = {
            "server": "/O=system:masters/CN=server",
            "admin": "/O=system:masters/CN=admin",
            "controllers": "/CN=system:kube-controller-manager",
            "scheduler": "/CN=system:kube-scheduler",
            "proxy": "/CN=system:kube-proxy",
        } | {f"node-{name}": f"/O=system:nodes/CN=system:node:{name}" for name in NODES}
        for name, subject in users.items():
            crt, its_key, asked = (self.root / f"{name}.{it}" for it in ("crt", "key", "csr"))
            extensions = self.root / f"{name}.ext"
            extensions.write_text(f"extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={names}\n")
            openssl("req", *key, f"-subj={subject}", "-keyout", its_key, "-out", asked)
            signed = ["-CA", self.authority, "-CAkey", ca_key, "-CAcreateserial", "-days=2"]
            openssl("x509", "-req", "-in", asked, *signed, "-extfile", extensions, "-out", crt)
            (self.root / f"{name}.json").write_text(json.dumps(self.access(crt, its_key)))

    def access(self, crt, key):
        """Returns what a client of the API server is told, as kubectl knows it."""
        server = {"server": f"https://{SERVER}:6443", "certificate-authority": str(self.authority)}
        user = {"client-certificate": str(crt), "client-key": str(key)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }

    @staticmethod
    def make_networks():
        def ip(*arguments):
            run("ip", *arguments)

        ip("link", "add", "nodes", "type", "bridge")
        ip("address", "add", f"{SERVER}/24", "dev", "nodes")
        ip("link", "set", "nodes", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for name, (address, pods) in NODES.items():
            ip("netns", "add", name)
            ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"to-{name}", "master", "nodes", "up")
            inside = ["-netns", name]
            ip(*inside, "link", "set", "lo", "up")
            ip(*inside, "address", "add", f"{address}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")
            ip(*inside, "route", "add", "default", "via", SERVER)
            ip("route", "add", pods, "via", address)

    def run_control_plane(self):
        at = self.root
        data = ["--data-dir", at / "etcd", "--listen-peer-urls=http://127.0.0.1:2380"]
        self.begin("etcd", self.programs / "etcd", *data, "--unsafe-no-fsync")
        self.begin(
            "api",
            self.programs / "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={SERVER}",
            f"--advertise-address={SERVER}",
            f"--client-ca-file={self.authority}",
            f"--tls-cert-file={at}/server.crt",
            f"--tls-private-key-file={at}/server.key",
            f"--kubelet-client-certificate={at}/server.crt",
            f"--kubelet-client-key={at}/server.key",
            # No DNS knows the nodes by name.
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={at}/accounts.key",
            f"--service-account-signing-key-file={at}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--cert-dir={at}/api",
        )
        self.context = ssl.create_default_context(cafile=self.authority)
        self.context.load_cert_chain(at / "admin.crt", at / "admin.key")
        _, took = eventually("the API server is ready", lambda: self.ask("/readyz")[0] == 200, SOON)
        told("the API server is ready", took)
        self.begin(
            "controllers",
            self.programs / "kube-controller-manager",
            f"--kubeconfig={at}/controllers.json",
            f"--service-account-private-key-file={at}/accounts.key",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--cert-dir={at}/controllers",
        )
        scheduler = [f"--kubeconfig={at}/scheduler.json", "--leader-elect=false", f"--cert-dir={at}/scheduler"]
        self.begin("scheduler", self.programs / "kube-scheduler", *scheduler)

    def ask(self, path, token=None, method="GET", body=None):
        """Returns the status and the body of the API server's answer, to the administrator or to who has the token."""
        context = ssl.create_default_context(cafile=self.authority) if token else self.context
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
            body = json.dumps(body).encode()
        asked = urllib.request.Request(f"https://{SERVER}:6443{path}", body, headers, method=method)
        try:
            with urllib.request.build_opener(*handlers).open(asked, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def get(self, path):
        status, body = self.ask(path)
        return json.loads(body) if status == 200 else {"items": []}

    def command(self, *arguments):
        return [f"{self.programs}/kubectl", f"--kubeconfig={self.root}/admin.json", *arguments]

    def kubectl(self, *arguments, **options):
        return run(*self.command(*arguments), **options)

    def within(self, pod, container, *command):
        return self.kubectl("exec", pod, f"--container={container}", "--", *command)

    def from_a_client(self, address, fails=False):
        """Asks from another pod. It may fail only where that is an answer."""
        ask = self.command("exec", "zookeeper-0", "--", "curl", "--silent", "--show-error", "--max-time", "2", address)
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        must(fails or done.returncode == 0, f"{address} answers: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    @contextmanager
    def log_of(self, pod):
        """Follows the log of a pod's sidecar, into a file that stays."""
        file = self.root / f"followed-{pod}"
        with open(file, "w") as log:
            following = subprocess.Popen(self.command("logs", "--follow", pod, "--container=bellwether"), stdout=log)
            try:
                yield file
            finally:
                following.terminate()
                following.wait()

    @staticmethod
    def signal(pod, number):
        os.kill(process_in(pod), number)

    def nodes_ready(self):
        return [it for it in self.get("/api/v1/nodes")["items"] if is_ready(it)]

    # -- What a cluster's DNS does

    def serve_names(self):
        """Answers for Services and the pods of headless ones. It stands in for CoreDNS, of which there is no package."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind((SERVER, 53))
        known, read = {}, 0.0
        while True:
            question, who = listener.recvfrom(512)
            if time.monotonic() - read > 0.2:
                known, read = self.names(), time.monotonic()
            listener.sendto(answered(question, known), who)

    def names(self):
        found, headless = {}, set()
        for it in self.get("/api/v1/services")["items"]:
            name = f"{it['metadata']['name']}.{it['metadata']['namespace']}.svc.{DOMAIN}"
            address = it["spec"]["clusterIP"]
            found[name] = [] if address == "None" else [address]
            headless |= {name} if address == "None" else set()
        for it in self.get("/api/v1/endpoints")["items"]:
            name = f"{it['metadata']['name']}.{it['metadata']['namespace']}.svc.{DOMAIN}"
            addresses = [each for subset in it.get("subsets", []) for each in subset.get("addresses", [])]
            for address in addresses if name in headless else []:
                found[name].append(address["ip"])
                if "hostname" in address:
                    found[f"{address['hostname']}.{name}"] = [address["ip"]]
        return found

    # -- What is applied

    def apply(self, documents):
        self.kubectl("apply", "--filename=-", given=yaml.safe_dump_all(map(of_1_20, documents)))

    def delete(self, documents):
        self.kubectl("delete", "--wait", "--filename=-", given=yaml.safe_dump_all(map(of_1_20, documents)), limit=SOON)
        eventually("its pods are gone", lambda: not self.pods(), SOON)

    def pods(self):
        """Returns the example's pods by name."""
        selected = "?labelSelector=app.kubernetes.io/name%3Dbellwether-example"
        items = self.get(f"/api/v1/namespaces/default/pods{selected}")["items"]
        return {it["metadata"]["name"]: it for it in items}

    def addresses(self):
        """Returns where each running pod that is not about to end answers questions."""
        return {name: f"{pod['status']['podIP']}:4041" for name, pod in self.pods().items() if is_running(pod)}

    def leader(self):
        return leader(self.addresses().values())

    def endpoints(self, service):
        found = self.get(f"/api/v1/namespaces/default/endpoints/{service}")
        addresses = [each for subset in found.get("subsets", []) for each in subset.get("addresses", [])]
        return sorted(each["targetRef"]["name"] for each in addresses)

    def slices(self, service):
        """Returns all EndpointSlices of a Service, by name."""
        selected = f"?labelSelector=kubernetes.io/service-name%3D{service}"
        items = self.get(f"/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices{selected}")["items"]
        return {it["metadata"]["name"]: it for it in items}

    def in_slice(self):
        """Returns the pod whose address the leader has written, and its token, like `leader`."""
        found = self.slices("example")[SLICE]
        addresses = [address for each in found["endpoints"] or [] for address in each["addresses"]]
        names = [name for name, pod in self.pods().items() if pod["status"].get("podIP") in addresses]
        token = found["metadata"].get("annotations", {}).get(TOKEN_ANNOTATION)
        return (", ".join(names or addresses), int(token)) if token else None

    def fields_written_by(self, manager):
        fields = self.slices("example")[SLICE]["metadata"]["managedFields"]
        return [it["fieldsV1"] for it in fields if it["manager"] == manager]

    def slice_version(self):
        return self.slices("example")[SLICE]["metadata"]["resourceVersion"]

    def ready_servers(self):
        found = self.get("/apis/apps/v1/namespaces/default/statefulsets/zookeeper")
        return found.get("status", {}).get("readyReplicas", 0)

    def all_ready(self, count=3):
        pods = self.pods()
        return len(pods) == count and all(map(is_ready, pods.values()))

    def expired(self):
        """Returns how many sessions the servers have seen end without being closed."""
        logs = [self.kubectl("logs", f"zookeeper-{n}") for n in range(3)]
        return sum(log.count("Expiring session") for log in logs)

    def another_leads(self, than, limit, action):
        """Acts, and waits meanwhile until the other members agree on another leader, whose token has to be greater."""
        others = [address for name, address in self.addresses().items() if name != than[0]]
        with ThreadPoolExecutor() as beside:
            acting = beside.submit(action)

            def question():
                named = leader(others)
                return named if named and named[0] != than[0] else None

            (who, token), took = eventually(f"another than {than[0]} leads", question, limit)
            acting.result()
        must(token > than[1], f"the token {token} of {who} is greater than {than[1]} of {than[0]}")
        return (who, token), took

    @contextmanager
    def watched(self):
        """Asks all members, whichever there are, and yields a list that gets the longest time without a leader."""
        over, longest = threading.Event(), [0.0, 0]

        def ask():
            last, who = time.monotonic(), None
            while not over.is_set():
                answers = [get(address, "/leader", limit=1) for address in self.addresses().values()]
                told_by = [json.loads(body)["leader"]["id"] for status, body in answers if status == 200]
                now = time.monotonic()
                if told_by:
                    longest[0] = max(longest[0], now - last)
                    longest[1] += told_by[0] != who and who is not None
                    last, who = now, told_by[0]
                over.wait(0.05)

        with ThreadPoolExecutor() as beside:
            asking = beside.submit(ask)
            try:
                yield longest
            finally:
                over.set()
        asking.result()

    def say(self):
        """Prints the end of each log, and what Kubernetes says of the pods."""
        for log in sorted(self.root.rglob("*.log")):
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            print(f"== {log.relative_to(self.root)}\n{tail}", file=sys.stderr)
        for what in (["get", "pods,services,endpoints,endpointslices", "--output=wide"], ["get", "events", "--sort-by=.lastTimestamp"]):
            done = subprocess.run(self.command(*what), capture_output=True, text=True, timeout=60)
            print(done.stdout[-6000:], file=sys.stderr)


def answered(question, known):
    """Returns DNS's answer to a question about IPv4 addresses."""
    end, labels = 12, []
    while length := question[end]:
        labels.append(question[end + 1 : end + 1 + length].decode())
        end += 1 + length
    asked = question[12 : end + 5]
    kind = struct.unpack(">H", asked[-4:-2])[0]
    name = ".".join(labels).lower()
    addresses = known.get(name, []) if kind == 1 else []
    code = 0 if name in known else 3
    head = question[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(addresses), 0, 0)
    each = [struct.pack(">HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(it) for it in addresses]
    return head + asked + b"".join(each)


def of_1_20(document):
    """Returns the document as Kubernetes 1.20 knows it: budgets and slices are still beta, and budgets have a field less."""
    if document and document["kind"] == "EndpointSlice":
        return as_v1beta1(document)
    if document and document["kind"] == "PodDisruptionBudget":
        spec = {name: value for name, value in document["spec"].items() if name != "unhealthyPodEvictionPolicy"}
        return document | {"apiVersion": "policy/v1beta1", "spec": spec}
    return document


def is_ready(it):
    return any(each["type"] == "Ready" and each["status"] == "True" for each in it["status"].get("conditions", []))


def is_running(pod):
    gone = "deletionTimestamp" in pod["metadata"]
    return not gone and pod["status"].get("podIP") and pod["status"]["phase"] == "Running"


def restarts(pod, container="bellwether"):
    return next(it for it in pod["status"]["containerStatuses"] if it["name"] == container)["restartCount"]


def process_in(pod):
    """Returns the process of a pod's sidecar, which runs on this machine like all others."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().split(b"\0")
            if command[:2] != [b"/bellwether", b"run"]:
                continue
            if f"POD_NAME={pod}\0".encode() in (place / "environ").read_bytes():
                return int(place.name)
        except OSError:
            continue
    raise SystemExit(f"no process of {pod} is found")


def rendered(*values):
    text = run("helm", "template", "example", "deploy/kubernetes/chart", "--skip-tests", "--set", ",".join(("sidecar=classic", *values)))
    return [it for it in yaml.safe_load_all(text) if it]


# -- The checks


def servers(cluster):
    """zookeeper.yaml"""
    for n in range(3):
        directory = cluster.root / f"volume-{n}"
        directory.mkdir()
        directory.chmod(0o777)
        cluster.apply([volume(n, directory)])
    cluster.apply(documents("zookeeper.yaml"))
    _, took = eventually("three servers are ready", lambda: cluster.ready_servers() == 3, SOON)
    told("three servers are ready", took)


def members(cluster):
    """classic.yaml"""
    cluster.apply(documents("classic.yaml"))
    _, took = eventually("three members are ready", cluster.all_ready, SOON)
    led, _ = eventually("they agree", cluster.leader)
    told(f"three members are ready, {led[0]} leads with token {led[1]}", took)
    on = {it["spec"]["nodeName"] for it in cluster.pods().values()}
    must(on == set(NODES), f"they are on both nodes: {on}")
    for name in cluster.pods():
        answer = cluster.within(name, "app", "curl", "--silent", "--max-time", "5", "localhost:4040/leader")
        must(json.loads(answer)["leader"]["id"] == led[0], f"localhost:4040/leader in {name}: {answer}")
    print(cluster.kubectl("exec", "deploy/example", "-c", "bellwether", "--", "/bellwether", "members"), flush=True)
    answer = cluster.from_a_client("http://example-members:4041/leader")
    must(json.loads(answer)["leader"]["id"] == led[0], f"the Service example-members: {answer}")
    told("localhost:4040/leader in each application's container, and http://example-members:4041/leader by DNS, name it")

    before = cluster.expired()
    deleted(cluster)
    rolled_out(cluster)
    drained_node(cluster)
    must(cluster.expired() == before, "no session timed out")
    told("none of them let a session time out")
    killed(cluster)
    stopped(cluster)
    without_servers(cluster)
    cluster.delete(documents("classic.yaml"))


def deleted(cluster):
    """Deletes the leader's pod. Its preStop hook hands over."""
    led = cluster.leader()
    with cluster.log_of(led[0]) as log:
        delete = lambda: cluster.kubectl("delete", "pod", led[0], "--wait=false")
        _, took = cluster.another_leads(led, HANDED_OVER, delete)
        _, gone = eventually("it is gone", lambda: led[0] not in cluster.pods(), 60)
    told("kubectl delete pod LEADER: another leads", took)
    told("  and the pod is gone", took + gone)
    said = [line for line in log.read_text().splitlines() if "bellwether::" in line]
    print("".join(f"     {line}\n" for line in said[-5:]), end="", flush=True)
    eventually("three are ready again", cluster.all_ready, SOON)


def rolled_out(cluster):
    """Replaces all pods by a rolling update."""
    eventually("they agree", cluster.leader)
    with cluster.watched() as longest:
        since = time.monotonic()
        cluster.kubectl("rollout", "restart", "deployment/example")
        cluster.kubectl("rollout", "status", "deployment/example", f"--timeout={SOON}s", limit=SOON + 10)
        took = time.monotonic() - since
        eventually("only the new ones are left", cluster.all_ready, SOON)
    told(f"kubectl rollout restart: done, {longest[1]} hand-overs", took)
    told("  the longest time in which no member named a leader", longest[0])


def drained_node(cluster):
    """Drains the leader's node, and takes it back."""
    led, _ = eventually("they agree", cluster.leader)
    node = cluster.pods()[led[0]]["spec"]["nodeName"]
    drain = ["drain", node, "--pod-selector=app.kubernetes.io/name=bellwether-example"]
    refused = subprocess.run(cluster.command(*drain), capture_output=True, text=True, timeout=60)
    must("--delete-emptydir-data" in refused.stderr, f"a drain wants to be told that volumes may go: {refused}")
    with cluster.watched() as longest:
        since = time.monotonic()
        cluster.kubectl(*drain, "--delete-emptydir-data", limit=SOON)
        took = time.monotonic() - since
        eventually("three are ready again", cluster.all_ready, SOON)
        eventually("they agree", cluster.leader)
    cluster.kubectl("uncordon", node)
    told(f"kubectl drain, the leader's node: done, {longest[1]} hand-overs", took)
    told("  the longest time in which no member named a leader", longest[0])


def killed(cluster):
    """Kills the leader's sidecar twice. The kubelet waits before it starts a container for the third time."""
    led = killed_once(cluster)
    named, took = cluster.another_leads(led, EXPIRED, lambda: cluster.signal(led[0], signal.SIGKILL))
    told("killed once more, when the kubelet waits: another leads", took)
    eventually("it is ready", cluster.all_ready, SOON)
    eventually("it follows", lambda: cluster.leader() == named)


def killed_once(cluster):
    """Kills the leader's sidecar, and returns the leader. The kubelet starts it again, and it goes on with its session."""
    led, _ = eventually("they agree", cluster.leader)
    leads_on("kill -9 of the leader's sidecar", cluster.addresses(), led, lambda: cluster.signal(led[0], signal.SIGKILL))
    eventually("the kubelet has started it once more", lambda: restarts(cluster.pods()[led[0]]) == 1)
    eventually("it is ready", cluster.all_ready, SOON)
    return led


def stopped(cluster):
    """Stops the leader's sidecar, so that its liveness probe fails."""
    led, _ = eventually("they agree", cluster.leader)
    before = restarts(cluster.pods()[led[0]])
    since = time.monotonic()
    stop = lambda: cluster.signal(led[0], signal.SIGSTOP)
    _, took = cluster.another_leads(led, EXPIRED, stop)
    told("kill -STOP of the leader's sidecar: another leads", took)
    eventually("the kubelet starts it again", lambda: restarts(cluster.pods()[led[0]]) > before, 240)
    eventually("it is ready", cluster.all_ready, SOON)
    told("  the liveness probe failed, and it is ready again", time.monotonic() - since)


def without_servers(cluster):
    """Takes ZooKeeper away for longer than a liveness probe takes to fail."""
    before = {name: restarts(pod) for name, pod in cluster.pods().items()}
    cluster.kubectl("scale", "statefulset/zookeeper", "--replicas=0")
    _, took = eventually("no member is ready", lambda: not any(map(is_ready, cluster.pods().values())), SOON)
    told("kubectl scale statefulset/zookeeper --replicas=0: no member is ready", took)
    must(cluster.endpoints("example-members") == sorted(before), "example-members has all of them nevertheless")
    # Three failures, 10 s apart, are what the kubelet allows.
    until = time.monotonic() + 45
    eventually("45 s have passed", lambda: time.monotonic() > until)
    must({name: restarts(pod) for name, pod in cluster.pods().items()} == before, "none was started again")
    cluster.kubectl("scale", "statefulset/zookeeper", "--replicas=3")
    _, took = eventually("all are ready", cluster.all_ready, SOON)
    eventually("they agree", cluster.leader)
    eventually("three servers are ready", lambda: cluster.ready_servers() == 3, SOON)
    told("45 s later none was started again; with --replicas=3 all are ready", took)


def by_readiness(cluster):
    """route: readiness"""
    these = rendered("route=readiness")
    cluster.apply(these)
    led, took = eventually("three agree", lambda: len(cluster.addresses()) == 3 and cluster.leader(), SOON)
    eventually("the leader alone is an endpoint", lambda: cluster.endpoints("example") == [led[0]])
    ready = [name for name, pod in cluster.pods().items() if is_ready(pod)]
    must(ready == [led[0]], f"the leader alone is ready: {ready}")
    answer = cluster.from_a_client("http://example/hostname")
    must(answer == led[0], f"http://example is {led[0]}: {answer}")
    told("the leader alone is ready, and http://example reaches it", took)
    moved(cluster, "kubectl delete pod LEADER", lambda: cluster.kubectl("delete", "pod", led[0], "--wait=false"))
    eventually("three agree", lambda: len(cluster.addresses()) == 3 and cluster.leader(), SOON)
    with cluster.watched() as longest:
        cluster.kubectl("rollout", "restart", "deployment/example")
        status = ["rollout", "status", "deployment/example", "--timeout=40s"]
        done = subprocess.run(cluster.command(*status), capture_output=True, text=True, timeout=60)
        eventually("the old ones are gone", lambda: len(cluster.pods()) == 3 == len(cluster.addresses()), SOON)
        led, _ = eventually("three agree", cluster.leader)
    told(f"kubectl rollout status after a restart: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    told("  the longest time in which no member named a leader", longest[0])
    eventually("the leader alone is an endpoint", lambda: cluster.endpoints("example") == [led[0]])
    cluster.delete(these)


def by_label(cluster):
    """route: label"""
    these = rendered("route=label")
    cluster.apply(these)
    _, took = eventually("three members are ready", cluster.all_ready, SOON)
    led, _ = eventually("they agree", cluster.leader)
    eventually("the leader alone is an endpoint", lambda: cluster.endpoints("example") == [led[0]])
    answer = cluster.from_a_client("http://example/hostname")
    must(answer == led[0], f"http://example is {led[0]}: {answer}")
    told("the leader alone has the label, and http://example reaches it", took)
    labelled = cluster.kubectl("get", "pods", "--label-columns=bellwether.io/role", "--selector=bellwether.io/role")
    print(labelled, flush=True)
    rights(cluster, led[0])
    moved(cluster, "kubectl delete pod LEADER", lambda: cluster.kubectl("delete", "pod", led[0], "--wait=false"))
    eventually("three are ready again", cluster.all_ready, SOON)
    rolled_out(cluster)
    led, _ = eventually("they agree", cluster.leader)
    eventually("the leader alone is an endpoint", lambda: cluster.endpoints("example") == [led[0]])
    without_the_role(cluster, these)
    cluster.delete(these)


def rights(cluster, pod):
    """Asks the API server with the sidecar's own token for what its role has, and for what it has not."""
    pods, other = "/api/v1/namespaces/default/pods", next(it for it in cluster.pods() if it != pod)
    asked = {
        ("PATCH", f"{pods}/{pod}"): 200,
        ("PATCH", f"{pods}/{other}"): 200,
        ("GET", f"{pods}/{pod}"): 403,
        ("GET", pods): 403,
        ("DELETE", f"{pods}/{other}"): 403,
        ("PATCH", f"{pods}/{other}/status"): 403,
        ("PATCH", "/api/v1/namespaces/default/endpoints/example"): 403,
        ("PATCH", "/api/v1/namespaces/kube-system/pods/any"): 403,
    }
    resources = answered_to_the_token(cluster, pod, asked | NEVER_ALLOWED)
    must(len(resources) == 1 and resources[0].startswith("pods ") and "[patch]" in resources[0], f"it has pods alone: {resources}")


# To none of the roles.
NEVER_ALLOWED = {
    ("GET", "/api/v1/namespaces/default/secrets"): 403,
    ("GET", "/api/v1/namespaces/default/configmaps/example-bellwether"): 403,
    ("PATCH", "/apis/apps/v1/namespaces/default/deployments/example"): 403,
    ("GET", "/api/v1/nodes"): 403,
}


def answered_to_the_token(cluster, pod, asked):
    """Checks the status of each answer to the sidecar's token, and returns the resources that kubectl lists for it."""
    token = Path(f"/proc/{process_in(pod)}/root/var/run/secrets/kubernetes.io/serviceaccount/token").read_text()
    mounts = cluster.within(pod, "app", "cat", "/proc/mounts")
    must("secrets/kubernetes.io" not in mounts, "the application has no token")
    labels = {"metadata": {"labels": {"asked": "yes"}}}
    for (method, path), expected in asked.items():
        status, body = cluster.ask(path, token, method, labels if method == "PATCH" else None)
        must(status == expected, f"{method} {path} is answered {expected}: {status} {body}")
        told(f"with the sidecar's token, {method} {path}: {status}")
    listed = cluster.kubectl("auth", "can-i", "--list", "--as=system:serviceaccount:default:example").splitlines()
    resources = [line for line in listed[1:] if not line.startswith(" ")]
    return [line for line in resources if not line.startswith("selfsubject")]


def by_haproxy(cluster):
    """route: haproxy"""
    these = rendered("route=haproxy")
    cluster.apply(these)
    _, took = eventually("three members are ready", cluster.all_ready, SOON)
    led, _ = eventually("they agree", cluster.leader)
    eventually("both HAProxies are ready", lambda: len(cluster.endpoints("example")) == 2, SOON)
    reached = lambda: cluster.from_a_client("http://example/hostname", fails=True)
    eventually("http://example is the leader", lambda: reached() == led[0])
    told("two HAProxies find the members by name, and http://example reaches the leader", took)
    delete = lambda: cluster.kubectl("delete", "pod", led[0], "--wait=false")
    named, took = cluster.another_leads(led, HANDED_OVER, delete)
    _, more = eventually("a client reaches it", lambda: reached() == named[0], 30)
    told("kubectl delete pod LEADER: another leads", took)
    told("  a client of http://example reaches it", took + more)
    eventually("three are ready again", cluster.all_ready, SOON)
    rolled_out(cluster)
    led, _ = eventually("they agree", cluster.leader)
    eventually("http://example is the leader", lambda: reached() == led[0])
    cluster.delete(these)


def by_endpoint_slice(cluster):
    """route: endpointslice"""
    at = cluster.root
    discovery = Discovery(SERVER, (SERVER, 6443), cluster.authority, at / "server.crt", at / "server.key")
    through = "bellwether.env[0].name=KUBERNETES_SERVICE_HOST", f"bellwether.env[0].value={SERVER}"
    these = rendered("route=endpointslice", *through)
    eventually("the Service of the route before is gone", lambda: not cluster.slices("example"), SOON)
    with discovery.serving():
        cluster.apply(these)
        _, took = eventually("three members are ready", cluster.all_ready, SOON)
        led, _ = eventually("they agree", cluster.leader)
        eventually("the slice has the leader's address and token", lambda: cluster.in_slice() == led)
        must(list(cluster.slices("example")) == [SLICE], "the Service has no other slice")
        answer = cluster.from_a_client("http://example/hostname")
        must(answer == led[0], f"http://example is {led[0]}: {answer}")
        told(f"the slice has the leader's address and its token, {led[1]}, and http://example reaches it", took)
        print(cluster.kubectl("get", "endpointslice", SLICE), flush=True)
        owned = cluster.fields_written_by("bellwether")
        must(owned == [{"f:endpoints": {}, "f:metadata": {"f:annotations": {f"f:{TOKEN_ANNOTATION}": {}}}}], f"{owned}")
        told("the field manager bellwether has written its endpoints and the annotation, and no other field")
        rights_to_the_slice(cluster, led[0])

        delete = lambda: cluster.kubectl("delete", "pod", led[0], "--wait=false")
        moved(cluster, "kubectl delete pod LEADER", delete, in_slice=True)
        eventually("three are ready again", cluster.all_ready, SOON)
        rolled_out(cluster)
        led, _ = eventually("they agree", cluster.leader)
        eventually("the slice has the leader", lambda: cluster.in_slice() == led)
        killed_in_slice(cluster)
        frozen(cluster)
        delayed_write(cluster, discovery)
        larger_token(cluster)
        emptied(cluster, discovery, these)
        without_rights_to_the_slice(cluster, these)
        cluster.delete(these)


def rights_to_the_slice(cluster, pod):
    """Asks the API server with the sidecar's own token for what its role has, and for what it has not."""
    slices = "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"
    other = next(iter(cluster.slices("example-members")))
    asked = {
        ("GET", f"{slices}/{SLICE}"): 200,
        ("PATCH", f"{slices}/{SLICE}"): 200,
        ("PUT", f"{slices}/{SLICE}"): 403,
        ("DELETE", f"{slices}/{SLICE}"): 403,
        ("GET", f"{slices}/{other}"): 403,
        ("PATCH", f"{slices}/{other}"): 403,
        ("GET", slices): 403,
        ("POST", slices): 403,
        # Roles are for all versions: this object is allowed, and not found.
        ("GET", f"{slices.replace('v1beta1', 'v1')}/{SLICE}"): 404,
        ("GET", f"{slices.replace('v1beta1', 'v1')}/{other}"): 403,
        ("PATCH", "/api/v1/namespaces/default/services/example"): 403,
        ("PATCH", f"/api/v1/namespaces/default/pods/{pod}"): 403,
    }
    resources = answered_to_the_token(cluster, pod, asked | NEVER_ALLOWED)
    is_one = len(resources) == 1 and resources[0].startswith("endpointslices.discovery.k8s.io ")
    must(is_one and f"[{SLICE}]" in resources[0] and "[get patch]" in resources[0], f"it has one slice alone: {resources}")


def killed_in_slice(cluster):
    """Kills the leader's sidecar twice."""
    version = cluster.slice_version()
    led = killed_once(cluster)
    must(cluster.slice_version() == version, "the same leader has not written once more")
    kill = lambda: cluster.signal(led[0], signal.SIGKILL)
    moved(cluster, "killed once more, when the kubelet waits", kill, EXPIRED, in_slice=True)
    eventually("it is ready", cluster.all_ready, SOON)


def frozen(cluster):
    """Freezes the leader's sidecar until another leads, and lets it go on."""
    led, _ = eventually("they agree", cluster.leader)
    freeze = lambda: cluster.signal(led[0], signal.SIGSTOP)
    moved(cluster, "kill -STOP of the leader's sidecar", freeze, EXPIRED, in_slice=True)
    version = cluster.slice_version()
    cluster.signal(led[0], signal.SIGCONT)
    eventually("all agree", lambda: (named := cluster.leader()) and named[0] != led[0])
    # A write in flight would arrive by then.
    time.sleep(2)
    must(cluster.slice_version() == version, "the old leader has not written")
    told("  kill -CONT of the old leader's sidecar: it follows, and does not write")
    eventually("all are ready", cluster.all_ready, SOON)


def delayed_write(cluster, discovery):
    """Holds a leader's writes back until the next leader has written."""
    first, _ = eventually("they agree", cluster.leader)
    second, third = (name for name in cluster.pods() if name != first[0])
    transfer = lambda source, target: cluster.within(source, "bellwether", "/bellwether", "transfer", "--to", target)
    with discovery.delayed(cluster.pods()[second]["status"]["podIP"]) as delay:
        transfer(first[0], second)
        eventually("it leads and tries to write", lambda: delay.writes)
        must(cluster.in_slice() == first, "the Service leads to the leader before")
        moved(cluster, "transfer, while the leader's write is delayed", lambda: transfer(second, third), in_slice=True)
        after = cluster.in_slice(), cluster.slice_version()
    eventually("its writes arrive", lambda: len(delay.answers) == len(delay.writes))
    print("".join(f"     {status}: {message}\n" for status, message in delay.answers), end="", flush=True)
    must(all(status == 409 for status, _ in delay.answers), "the API server refuses them")
    must((cluster.in_slice(), cluster.slice_version()) == after, "the later leader's address is still there")
    told("  the old leader's write arrives after it: refused as a conflict, and nothing is changed")


def larger_token(cluster):
    """Puts a larger token than the leader's into the annotation, as if a later leader had written."""
    led, _ = eventually("they agree", cluster.leader)
    annotate = "annotate", "--overwrite", "endpointslice", SLICE
    cluster.kubectl(*annotate, f"{TOKEN_ANNOTATION}={2**62}")
    resign = lambda: cluster.within(led[0], "bellwether", "/bellwether", "resign")
    named, _ = cluster.another_leads(led, HANDED_OVER, resign)
    says(cluster, named[0], "was written by a later leader, or for another election")
    must(cluster.in_slice() == (led[0], 2**62), "the leader with the smaller token has not written")
    cluster.kubectl(*annotate, f"{TOKEN_ANNOTATION}-")
    _, took = eventually("the slice has the leader", lambda: cluster.in_slice() == named, 90)
    told("a larger token in the annotation: the leader does not write")
    told("  with kubectl annotate endpointslice example-leader bellwether.io/fencing-token- the slice has the leader", took)


def emptied(cluster, discovery, these):
    """Applies the manifest once more, with its empty list of endpoints."""
    led, _ = eventually("they agree", cluster.leader)
    before = len(discovery.requests)
    cluster.apply([it for it in these if it["kind"] == "EndpointSlice"])
    _, took = eventually("the leader writes", lambda: [it for it in discovery.requests[before:] if it[0] == "PATCH"], 40)
    eventually("the slice has the leader", lambda: cluster.in_slice() == led)
    told("kubectl apply of endpoints: [] empties the slice; the leader has written its address again", took)
    before = len(discovery.requests)
    seen, took = eventually("the leader looks again", lambda: discovery.requests[before:], 40)
    must(seen == [("GET", 200)], f"it only reads: {seen}")
    told("  and it only reads, when it looks the next time", took)


def without_rights_to_the_slice(cluster, these):
    """Takes the rights away and gives them back one by one, while the leader is another."""
    [role] = [it for it in these if it["kind"] == "Role"]
    binding = [it for it in these if it["kind"] == "RoleBinding"]
    cluster.kubectl("delete", "rolebinding", "example")
    led, _ = eventually("they agree", cluster.leader)
    resign = lambda: cluster.within(led[0], "bellwether", "/bellwether", "resign")
    named, _ = cluster.another_leads(led, HANDED_OVER, resign)
    print(says(cluster, named[0], "the API server answers 403", "cannot get resource"), flush=True)
    cluster.apply(with_verbs(role, "get") + binding)
    says(cluster, named[0], "the API server answers 403", "cannot patch resource")
    cluster.apply(with_verbs(role, "patch"))
    says(cluster, named[0], "the API server answers 403", "cannot get resource")
    must(cluster.in_slice() == led, "the Service leads to the old leader")
    told("without the binding, and with get or patch alone, the status says what is forbidden; nothing is written")
    cluster.apply([role])
    _, took = eventually("the slice has the leader", lambda: cluster.in_slice() == named, 90)
    told("  with get and patch again, the slice has the leader", took)


def with_verbs(role, *verbs):
    return [role | {"rules": [rule | {"verbs": list(verbs)} for rule in role["rules"]]}]


def says(cluster, pod, *parts):
    """Waits until the status of this pod's sidecar has these parts, and returns it."""

    def question():
        status = cluster.within(pod, "bellwether", "/bellwether", "status")
        return status if all(part in status for part in parts) else None

    return eventually(f"its status says {' and '.join(parts)}", question, 90)[0]


def moved(cluster, what, action, limit=HANDED_OVER, in_slice=False):
    """Acts, and waits until the Service leads to the next leader, and to it alone."""
    led, _ = eventually("they agree", cluster.leader)
    named, took = cluster.another_leads(led, limit, action)

    def has_it():
        return cluster.in_slice() == named if in_slice else cluster.endpoints("example") == [named[0]]

    _, more = eventually("the Service leads to it", has_it, 30)
    told(f"{what}: another leads", took)
    told("  it alone is the Service's endpoint" + in_slice * f", with its token, {named[1]} after {led[1]}", took + more)
    reached = lambda: cluster.from_a_client("http://example/hostname", fails=True) == named[0]
    _, last = eventually("a client reaches it", reached, 30)
    told("  a client of http://example reaches it", took + more + last)


def without_the_role(cluster, these):
    """Takes the right away, changes the leader, and gives it back."""
    binding = [it for it in these if it["kind"] == "RoleBinding"]
    cluster.kubectl("delete", "rolebinding", "example")
    led, _ = eventually("they agree", cluster.leader)
    resign = lambda: cluster.within(led[0], "bellwether", "/bellwether", "resign")
    named, _ = cluster.another_leads(led, HANDED_OVER, resign)
    print(says(cluster, named[0], "the API server answers 403"), flush=True)
    must(cluster.endpoints("example") == [led[0]], "the Service leads to the old leader")
    cluster.apply(binding)
    _, took = eventually("the Service leads to the leader", lambda: cluster.endpoints("example") == [named[0]], 90)
    told("with the binding again, the Service leads to the leader", took)


def volume(n, directory):
    """Returns a volume for a server. The cluster has none that would make one."""
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(directory)}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{n}"}, "spec": spec}


def documents(name):
    return [it for it in yaml.safe_load_all(Path(f"deploy/kubernetes/{name}").read_text()) if it]


if __name__ == "__main__":
    main(*sys.argv[1:])
