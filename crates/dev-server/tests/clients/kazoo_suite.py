"""Lets kazoo's own tests run against one in-memory server, as a plugin of pytest, from the root of the repository:

    cargo build -p bellwether-dev-server --example serve
    pip install kazoo==2.11.0 pytest pytest-timeout pyopenssl pyjks
    PYTHONPATH=crates/dev-server/tests/clients pytest -p kazoo_suite --timeout 180 --pyargs kazoo.tests
"""

import atexit
import os
import random
import socket
import subprocess
import time

os.environ.setdefault("ZOOKEEPER_VERSION", "3.8.0")
from kazoo.testing import harness

SERVE = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "debug/examples/serve")


class Server:
    """What kazoo's tests ask of a server."""

    host = "127.0.0.1"

    def __init__(self):
        # Below the ports from which the kernel serves outgoing connections.
        self.client_port = random.randrange(10_000, 30_000)
        self.address = self.secure_address = f"{self.host}:{self.client_port}"
        self.process = None

    @property
    def running(self):
        return self.process is not None

    def run(self):
        if self.running:
            return
        self.process = subprocess.Popen([SERVE, self.address], stdout=subprocess.DEVNULL)
        for _ in range(300):
            try:
                with socket.create_connection((self.host, self.client_port), 1) as asked:
                    asked.sendall(b"ruok")
                    if asked.recv(4) == b"imok":
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{SERVE} does not serve at {self.address}")

    def stop(self):
        if self.running:
            self.process.kill()
            self.process.wait()
            self.process = None


class Cluster(list):
    """One server for all tests, whatever size they ask for."""

    def start(self):
        for server in self:
            server.run()

    def terminate(self):
        """It stays for the next test."""

    def get_logs(self):
        return []


cluster = Cluster([Server()])
cluster.start()
atexit.register(cluster[0].stop)
harness.get_global_cluster = lambda: cluster
