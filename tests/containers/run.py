"""Runs what lies in deploy/ in a container engine, and checks what is promised of it: scripts/containers starts this.

It has namespaces of its own, and a directory for the engine; both end with it.
"""

import ctypes
import json
import os
import re
import resource
import signal
import socket
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

HERE = Path(__file__).parent
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SUBNET, GATEWAY = "10.77.0.0/24", "10.77.0.1"

# The exit code, as scripts/containers knows it.
NO_ENGINE = 77

# A session of 10 s, as the examples have it, has ended by then, and the next leader has been asked.
EXPIRED = 10 + 2 * 2 + 6
# And a hand-over has not waited for it: a session outlives its last heartbeat, a second ago at most, by 10 s.
HANDED_OVER = 8


def main(engine_root, mode, base, binary):
    started = time.monotonic()
    root = Path(engine_root)
    configure(root)
    if subprocess.run(["podman", "info"], stdout=subprocess.DEVNULL, timeout=60).returncode != 0:
        sys.exit(NO_ENGINE)
    podman("import", base, "localhost/debian", limit=120)
    checks = {
        "--all": [
            ("image", lambda: image(binary, root)),
            ("compose", compose),
            ("pods", lambda: pods(root / "port-80.yaml")),
            ("systemd", lambda: service(binary, root)),
        ],
        "--image": [("the Dockerfile", lambda: dockerfile(binary, root))],
    }
    for title, check in checks[mode]:
        since = time.monotonic()
        print(f"-- {title}", flush=True)
        try:
            check()
        except BaseException:
            what_containers_say()
            raise
        print(f"   took {time.monotonic() - since:.0f} s", flush=True)
    print(f"-- all held after {time.monotonic() - started:.0f} s")


# -- The engine


def configure(root):
    """Writes the engine's configuration: its own directories, and nothing that takes systemd or more rights."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    (root / "containers.conf").write_text(f"""
        [containers]
        # A process without CAP_SYS_RESOURCE may only lower them, and the two must be the same.
        default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
        log_driver = "k8s-file"
        [engine]
        cgroup_manager = "cgroupfs"
        # crun refuses both kinds of cgroups beside each other.
        runtime = "runc"
        events_logger = "file"
        env = ["DISABLE_HC_SYSTEMD=true"]
        [network]
        network_backend = "netavark"
        network_config_dir = "{root}/networks"
    """)
    (root / "storage.conf").write_text(f"""
        [storage]
        driver = "overlay"
        graphroot = "{root}/storage"
        runroot = "{root}/run"
    """)
    os.environ["CONTAINERS_CONF"] = f"{root}/containers.conf"
    os.environ["CONTAINERS_STORAGE_CONF"] = f"{root}/storage.conf"
    os.environ["TMPDIR"] = str(root)


def run(*command, limit=60, given=None):
    """Returns what it prints. It fails if the command does, or if it takes longer than `limit` seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, input=given)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"not done within {limit} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def podman(*arguments, **options):
    return run("podman", *arguments, **options)


def inspected(name):
    return json.loads(podman("container", "inspect", name))[0]


def what_containers_say():
    for name in podman("ps", "--all", "--format={{.Names}}").split():
        logs = subprocess.run(["podman", "logs", "--tail=15", name], capture_output=True, text=True, timeout=60)
        print(f"== log of {name}, {inspected(name)['State']['Status']}\n{logs.stdout}{logs.stderr}", file=sys.stderr)


def process_of(name):
    return inspected(name)["State"]["Pid"]


def must(holds, what):
    if not holds:
        raise SystemExit(f"not so: {what}")


def eventually(what, question, limit=60):
    """Asks until the answer counts as true, and returns it and the seconds that took."""
    since = time.monotonic()
    while not (answer := question()):
        if time.monotonic() - since > limit:
            raise SystemExit(f"not so within {limit} s: {what}")
        time.sleep(0.02)
    return answer, time.monotonic() - since


def told(what, seconds=None):
    print(f"   {what}" + ("" if seconds is None else f": {seconds:.2f} s"), flush=True)


# -- Members


def get(address, path, limit=2):
    """Returns the status and the body, or 0 and why there is no answer."""
    try:
        with DIRECT.open(f"http://{address}{path}", timeout=limit) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def leader(addresses):
    """Returns who leads, if each member says the same, and its token."""
    answers = [get(address, "/leader") for address in addresses]
    if any(status != 200 for status, _ in answers):
        return None
    named = {(it["leader"]["id"], it["leader"]["token"]) for it in (json.loads(body) for _, body in answers)}
    return named.pop() if len(named) == 1 else None


def another_leads(addresses, than, limit, action):
    """Acts, and waits meanwhile until the members agree on another leader, whose token has to be a greater one."""

    def question():
        named = leader(addresses)
        return named if named and named[0] != than[0] else None

    with ThreadPoolExecutor() as beside:
        acting = beside.submit(action)
        (who, token), took = eventually(f"another than {than[0]} leads", question, limit)
    acting.result()
    must(token > than[1], f"the token {token} of {who} is greater than {than[1]} of {than[0]}")
    return (who, token), took


@contextmanager
def asked_every_50_ms(addresses):
    """Asks members, by name, who leads, and prints what each said whenever that was another than before."""
    since, over, said = time.monotonic(), threading.Event(), []

    def ask(name, address):
        last = None
        while not over.is_set():
            status, body = get(address, "/leader", limit=1)
            named = json.loads(body)["leader"] if status == 200 else {}
            now = "{id} leads, token {token}".format(**named) if named else f"{status}" if status else "no answer"
            if now != last:
                said.append((time.monotonic() - since, name, now))
            last = now
            over.wait(0.05)

    with ThreadPoolExecutor() as beside:
        asking = [beside.submit(ask, *each) for each in addresses.items()]
        try:
            yield said
        finally:
            over.set()
    for each in asking:
        each.result()
    for moment, name, now in sorted(said):
        print(f"     {moment:6.2f} s  {name}: {now}", flush=True)


def leads_on(what, addresses, led, kill):
    """Kills the process of the leader, which is started again with its session file. No other leads meanwhile."""
    with asked_every_50_ms(addresses) as said:
        # Each has been asked before.
        eventually("all name the leader", lambda: len(said) >= len(addresses) and leader(addresses.values()) == led)
        since = time.monotonic()
        kill()
        eventually("they agree", lambda: leader(addresses.values()), HANDED_OVER)
        took = time.monotonic() - since
    named = {now for _, _, now in said if " leads, " in now}
    must(named == {f"{led[0]} leads, token {led[1]}"}, f"{led} leads on with the session of its file: {named}")
    must(any(now == "no answer" for _, _, now in said), f"it was gone for a moment: {said}")
    told(f"{what}: it is back, and leads on", took)


def confined(name):
    """Holds the process against what its container promises, as the kernel says it."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process_of(name)}/status").read_text().splitlines())
    rights = {status[each].strip() for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    must(rights == {"0" * 16}, f"{name} has no capabilities: {rights}")
    must(status["Uid"].split() == ["65532"] * 4, f"{name} runs as 65532: {status['Uid']}")
    must(status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2", f"{name} is confined")
    root = Path(f"/proc/{process_of(name)}/mountinfo").read_text().splitlines()
    options = next(fields[5] for fields in map(str.split, root) if fields[4] == "/")
    must("ro" in options.split(","), f"{name} cannot write to its root: {options}")


# -- The image


def dockerfile(binary, root):
    """Builds the Dockerfile as it is, with the toolchain and the certificates of this machine."""
    sources = root / "source"
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    from_here = ["--network=host", f"--volume={certificates}:{certificates}:ro"]
    podman("build", *from_here, "--tag=localhost/rust", str(HERE / "rust"), limit=300)
    toolchain = f"--volume={run('rustc', '--print', 'sysroot')}:/usr/local/rust:ro"
    base = "--build-arg=RUST=localhost/rust"
    podman("build", "--format=docker", *from_here, toolchain, base, "--tag=localhost/bellwether", str(sources), limit=3400)
    one_file_and_nothing_else("localhost/bellwether", binary)


def image(binary, root):
    """Builds the Dockerfile's last stage around the binary that is there, and the images that stand in for others."""
    stand_ins = {"docker.io/library/zookeeper:3.9.4": "zookeeper", "docker.io/traefik/whoami:v1.11.0": "app"}
    for name, directory in stand_ins.items():
        podman("build", "--network=none", "--tag", name, str(HERE / directory), limit=120)
    told("base images are there")

    context = root / "image"
    context.mkdir()
    run("cp", binary, str(context / "bellwether"))
    last = Path("Dockerfile").read_text().partition("\nFROM scratch\n")[2]
    (context / "Dockerfile").write_text("FROM scratch\n" + last.replace("--from=build /", ""))
    # Any other format drops the HEALTHCHECK.
    version = yaml.safe_load(Path("deploy/kubernetes/chart/Chart.yaml").read_text())["version"]
    tags = ["--tag=localhost/bellwether:latest", f"--tag=localhost/bellwether:{version}"]
    podman("build", "--format=docker", *tags, str(context))
    one_file_and_nothing_else("localhost/bellwether", binary)
    must(podman("run", "--rm", "--network=none", "bellwether", "--version").endswith(version), "it says its version")

    podman("run", "--detach", "--name=elsewhere", "--network=none", "bellwether", "run", "--listen=127.0.0.1:5050")
    eventually("the health check asks where --listen says", lambda: is_well("elsewhere"))
    podman("rm", "--force", "--time=2", "elsewhere")
    told("the health check finds a sidecar by its --listen")


def one_file_and_nothing_else(image, binary):
    facts = json.loads(podman("image", "inspect", image))[0]
    config = facts["Config"]
    must(len(facts["RootFS"]["Layers"]) == 1, "the image has one layer")
    must(config["User"] == "65532:65532", f"its user is 65532: {config['User']}")
    must((config["Entrypoint"], config["Cmd"]) == (["/bellwether"], ["run"]), f"it runs /bellwether run: {config}")
    must(facts["Healthcheck"]["Test"] == ["CMD", "/bellwether", "probe", "live"], f"its health check: {facts}")
    place = Path(podman("image", "mount", image))
    files = [path for path in place.rglob("*") if not path.is_dir()]
    must(files == [place / "bellwether"], f"it has one file: {files}")
    sizes = [path.stat().st_size for path in (files[0], Path(binary))]
    must(files[0].read_bytes() == Path(binary).read_bytes(), f"its file is {binary}, byte by byte: {sizes} bytes")
    cargo = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    must(f"{cargo}/registry".encode() not in files[0].read_bytes(), f"its file does not tell of {cargo}")
    told(f"one layer, one file of {files[0].stat().st_size} bytes, user, entry point, health check")
    podman("image", "unmount", image)


def is_well(name):
    return subprocess.run(["podman", "healthcheck", "run", name], capture_output=True, timeout=20).returncode == 0


# -- deploy/compose.yaml


def compose():
    ports = {"a": 5041, "b": 5042, "c": 5043}
    os.environ.update({f"PORT_{each.upper()}": str(port) for each, port in ports.items()})
    file = Path("deploy/compose.yaml")
    members = [f"127.0.0.1:{port}" for port in ports.values()]

    def composed(*arguments):
        return run("podman-compose", "--file", str(file), *arguments)

    def others(led):
        return [f"127.0.0.1:{port}" for each, port in ports.items() if each != led[0]]

    composed("up", "--detach", "--no-build")
    first, _ = eventually("the three of compose.yaml elect", lambda: leader(members), 90)
    names = {each: f"bellwether_{each}_1" for each in ports}
    for name in names.values():
        confined(name)
        must(is_well(name), f"{name} is healthy")
    told(f"{first[0]} leads; all are healthy, without capabilities, root file systems read-only")

    # The command in the file's first lines, as it is.
    written = re.search(r"^# +(docker compose .* kill .*)$", file.read_text(), re.MULTILINE)[1]
    kill = ["sh", "-c", written.replace("docker compose", "podman-compose")]
    second, took = another_leads(others(first), first, EXPIRED, lambda: run(*kill))
    must(not inspected(names[first[0]])["State"]["Running"], f"`{written}` kills {first[0]}, which leads")
    told("the leader was killed, another leads", took)
    composed("start", first[0])
    eventually("it is back, as a follower", lambda: leader(members) == second)

    third, took = another_leads(others(second), second, HANDED_OVER, lambda: composed("stop", second[0]))
    code = inspected(names[second[0]])["State"]["ExitCode"]
    must(code == 0, f"who is stopped ends with 0, not {code}")
    told("the leader was stopped, another led at once", took)
    composed("start", second[0])
    eventually("it is back, as a follower", lambda: leader(members) == third)

    fourth, took = another_leads(others(third), third, HANDED_OVER, lambda: composed("restart", third[0]))
    eventually("it is back, as a follower", lambda: leader(members) == fourth)
    told("the leader was restarted, another led at once", took)

    process = process_of(names[fourth[0]])
    addresses = {each: f"127.0.0.1:{port}" for each, port in ports.items()}
    leads_on("kill -9 of the leader's process", addresses, fourth, lambda: os.kill(process, signal.SIGKILL))
    composed("down", "--timeout=2", "--volumes")


# -- deploy/kubernetes


class Pods:
    """The pods of a manifest, each with an address of its own, as `podman kube play` takes them."""

    def __init__(self):
        podman("network", "create", f"--subnet={SUBNET}", f"--gateway={GATEWAY}", "pods")
        self.hosts = {}

    def start(self, template, name, number):
        """Starts a pod; what a kubelet fills in and the engine does not, is filled in here."""
        address = self.hosts[name] = f"10.77.0.{number}"
        facts = {"status.podIP": address, "metadata.name": name, "metadata.namespace": "default"}
        spec = json.loads(json.dumps(template["spec"]))
        for container in spec["containers"]:
            known = {}
            for variable in container.get("env", []):
                if "valueFrom" in variable:
                    variable["value"] = facts[variable.pop("valueFrom")["fieldRef"]["fieldPath"]]
                replaced = re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), variable["value"])
                variable["value"] = known[variable["name"]] = replaced
            # Ports would be taken of the host; probes and hooks are not as a kubelet's, and called by hand.
            for key in ("ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"):
                container.pop(key, None)
            # One name is one volume of the engine, whichever pod has it.
            for mount in container.get("volumeMounts", []):
                mount["name"] = f"{name}-{mount['name']}"
        claimed = [{"name": it["metadata"]["name"], "emptyDir": {}} for it in template["claims"]]
        spec["volumes"] = [it | {"name": f"{name}-{it['name']}"} for it in spec.get("volumes", []) + claimed]
        for volume in spec["volumes"]:
            # Root's alone otherwise; a kubelet lets all users of the pod write there.
            podman("volume", "create", volume["name"])
            os.chmod(podman("volume", "inspect", "--format={{.Mountpoint}}", volume["name"]), 0o777)
        spec |= {"restartPolicy": "Always", "hostname": name, "hostAliases": self.aliases()}
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        podman("kube", "play", f"--ip={address}", "--network=pods", "-", given=yaml.safe_dump(pod))
        return name

    @staticmethod
    def aliases():
        servers = range(3)
        return [{"ip": f"10.77.0.{10 + n}", "hostnames": [f"zookeeper-{n}.zookeeper"]} for n in servers]

    @staticmethod
    def drain(name, command):
        podman("exec", f"{name}-bellwether", *command)

    def probes(self, names):
        return [f"{self.hosts[name]}:4041" for name in names]


def template(documents, kind):
    document = next(it for it in documents if it and it["kind"] == kind)
    return document["spec"]["template"] | {"claims": document["spec"].get("volumeClaimTemplates", [])}


def pods(port_80):
    engine = Pods()
    server = template(list(yaml.safe_load_all(Path("deploy/kubernetes/zookeeper.yaml").read_text())), "StatefulSet")
    servers = [engine.start(server, f"zookeeper-{n}", 10 + n) for n in range(3)]
    classic = template(list(yaml.safe_load_all(Path("deploy/kubernetes/classic.yaml").read_text())), "Deployment")
    sidecar = next(it for it in classic["spec"]["containers"] if it["name"] == "bellwether")
    members = [engine.start(classic, f"example-{n}", 20 + n) for n in range(3)]
    first, took = eventually("the three pods elect", lambda: leader(engine.probes(members)), 40)
    told(f"{first[0]} leads", took)
    for name in members:
        confined(f"{name}-bellwether")
        ask(name, "localhost:4040/leader", first[0])
    told("curl localhost:4040/leader answers in each application's container")

    drain = sidecar["lifecycle"]["preStop"]["exec"]["command"]
    others = [each for each in members if each != first[0]]
    second, took = another_leads(engine.probes(others), first, HANDED_OVER, lambda: engine.drain(first[0], drain))
    podman("exec", f"{first[0]}-bellwether", "/bellwether", "resume")
    told("drained by exec, another led", took)

    sidecar, addresses = f"{second[0]}-bellwether", dict(zip(members, engine.probes(members)))
    kill = lambda: os.kill(process_of(sidecar), signal.SIGKILL)
    leads_on("kill -9 of the leader's sidecar", addresses, second, kill)
    third = frozen(engine, members, second)
    many_streams(engine, members, third)
    rolled(engine, servers, members, classic, drain)
    at_port_80(engine, port_80)


def ask(pod, place, who):
    answer = podman("exec", f"{pod}-app", "curl", "--silent", "--show-error", "--max-time", "5", place)
    must(json.loads(answer)["leader"]["id"] == who, f"{place} in {pod} names {who}: {answer}")


def frozen(engine, members, led):
    """Freezes the leader's sidecar for longer than its session. Its first answer must not be that it leads."""
    name = f"{led[0]}-bellwether"
    others = [each for each in members if each != led[0]]
    named, took = another_leads(engine.probes(others), led, EXPIRED, lambda: podman("pause", name))
    told("a frozen leader: another leads", took)
    with ThreadPoolExecutor() as beside:
        asked = beside.submit(get, engine.probes([led[0]])[0], "/is-leader", limit=30)
        podman("unpause", name)
    must(asked.result()[0] == 503, f"the first answer after a pause is 503: {asked.result()}")
    eventually("it is a follower", lambda: leader(engine.probes(members)) == named)
    return named


def many_streams(engine, members, led):
    """Opens more streams than there are places: the next is told so, and the limit of memory is kept."""
    process, streams = process_of(f"{led[0]}-bellwether"), []

    def fill():
        # Of this thread alone. The API is on the pod's loopback.
        with open(f"/proc/{process}/ns/net") as network:
            must(ctypes.CDLL(None).setns(network.fileno(), 0) == 0, "a thread may enter a pod's network")
        status = b"200"
        while status == b"200" and len(streams) < 4000:
            streams.append(socket.create_connection(("127.0.0.1", 4040), timeout=10))
            streams[-1].sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = streams[-1].recv(4096).split(b" ")[1]
        return status

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ThreadPoolExecutor() as beside:
        status = beside.submit(fill).result()
    must(status == b"503", f"stream {len(streams)} is one too many: {status}")
    must(leader(engine.probes(members)) == led, f"{led[0]} leads on")
    must(process_of(f"{led[0]}-bellwether") == process, "its process is the same: it was not killed for its memory")
    peak = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text())[1]
    told(f"stream {len(streams)} is answered 503, with {int(peak) // 1024} MiB at most, and it leads on")
    for stream in streams:
        stream.close()


def rolled(engine, servers, members, classic, drain):
    """Replaces every pod, as a rollout does: a new one, then an old one is drained and ended."""
    def expired():
        # Every server writes the sessions that it sees expire as the leader of the quorum.
        return sum(podman("logs", f"{name}-zookeeper").count("Expiring session") for name in servers)

    before, longest = expired(), 0.0
    for n, old in enumerate(list(members)):
        new = engine.start(classic, f"example-{n}-new", 30 + n)
        eventually(f"{new} is ready", lambda: get(engine.probes([new])[0], "/readyz")[0] == 200)
        members[n] = new
        led, _ = eventually("they agree", lambda: leader(engine.probes([old, *members])))
        if led[0] == old:
            _, took = another_leads(engine.probes(members), led, HANDED_OVER, lambda: engine.drain(old, drain))
            longest = max(longest, took)
        else:
            engine.drain(old, drain)
        podman("pod", "stop", "--time=35", old)
        code = inspected(f"{old}-bellwether")["State"]["ExitCode"]
        must(code == 0, f"{old}'s sidecar ended with 0, not {code}")
        podman("pod", "rm", "--force", old)
    must(expired() == before, "no session timed out in a rolling replacement")
    told("all pods replaced one by one, no session timed out; longest hand-over after a drain", longest)


def at_port_80(engine, manifest):
    """Starts a pod by the chart's value for port 80, and asks as an application would like to: without a port."""
    pod = template(list(yaml.safe_load_all(manifest.read_text())), "Deployment")
    engine.start(pod, "example-80", 40)
    for sysctl in pod["spec"]["securityContext"]["sysctls"]:
        # The engine passes it over. Until then the sidecar cannot listen, and is started again.
        file = "/proc/sys/" + sysctl["name"].replace(".", "/")
        network = f"--net=/proc/{process_of('example-80-app')}/ns/net"
        run("nsenter", network, "sh", "-c", f"echo {sysctl['value']} >{file}")
    eventually("it is ready", lambda: get(engine.probes(["example-80"])[0], "/readyz")[0] == 200)
    confined("example-80-bellwether")
    answer = podman("exec", "example-80-app", "curl", "--silent", "--max-time", "5", "localhost/leader")
    must("leader" in json.loads(answer), f"curl localhost/leader answers: {answer}")
    told("curl localhost/leader answers, without a capability")


# -- deploy/systemd


def service(binary, root):
    """Runs the unit under systemd beside a member in a container, and kills its process."""
    podman("network", "create", "--subnet=10.78.0.0/24", "service")
    podman("run", "--detach", "--name=zookeeper", "--network=service", "--ip=10.78.0.10", "zookeeper:3.9.4")
    unit = "/etc/systemd/system/bellwether.service"
    environment = root / "bellwether.default"
    servers, path = "BELLWETHER_ZOOKEEPER=10.78.0.10:2181", "BELLWETHER_ELECTION=/service"
    environment.write_text(f"{servers}\n{path}\nBELLWETHER_ID=host\nBELLWETHER_LISTEN=0.0.0.0:4040\n")
    files = {
        binary: "/usr/bin/bellwether",
        "deploy/systemd/bellwether.service": unit,
        "config/bellwether.toml": "/etc/bellwether.toml",
        environment: "/etc/default/bellwether",
    }
    volumes = [f"--volume={Path(source).resolve()}:{place}:ro" for source, place in files.items()]
    options = ["--detach", "--systemd=always", "--privileged", "--network=service", "--ip=10.78.0.11", *volumes]
    podman("run", "--name=host", *options, "localhost/debian", "/lib/systemd/systemd")
    eventually("systemd runs", lambda: systemctl("is-system-running", fails=True) in ("running", "degraded"))
    # It returns once the service has said that it serves.
    systemctl("start", "bellwether")
    host = "10.78.0.11:4040"
    led, took = eventually("the service leads", lambda: leader([host]))
    must(led[0] == "host", f"{led} is the service")
    told("systemd has started it, and it leads", took)

    member = ["--network=service", "--ip=10.78.0.12", "--env", servers, "--env", path, "--env=BELLWETHER_ID=other"]
    podman("run", "--detach", "--name=other", *member, "bellwether", "run", "--listen=0.0.0.0:4040")
    addresses = {"host": host, "other": "10.78.0.12:4040"}
    eventually("the other follows", lambda: leader(addresses.values()) == led)
    kill = lambda: systemctl("kill", "--signal=KILL", "bellwether")
    leads_on("kill -9 of the leader's process", addresses, led, kill)
    must(systemctl("show", "--value", "--property=NRestarts", "bellwether") == "1", "systemd started it once more")
    named, took = another_leads([addresses["other"]], led, HANDED_OVER, lambda: systemctl("stop", "bellwether"))
    must(named[0] == "other", f"{named} is the other")
    told("the service was stopped, another led at once", took)
    podman("rm", "--force", "--time=2", "host", "other", "zookeeper")


def systemctl(*arguments, fails=False):
    """Returns what it says; it may fail only where its exit code is an answer."""
    done = subprocess.run(["podman", "exec", "host", "systemctl", *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and not fails:
        state = podman("exec", "host", "journalctl", "--no-pager", "--lines=30")
        raise SystemExit(f"systemctl {' '.join(arguments)}: {done.stderr}{state}")
    return done.stdout.strip()


if __name__ == "__main__":
    main(*sys.argv[1:])
