"""kazoo's Election, as a contestant: see contest.rs for what is said and heard."""

import sys
import threading
import time

from kazoo.client import KazooClient

servers, path, count, session_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
leader = None


def say(word):
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


class Contender(threading.Thread):
    def __init__(self, client, name):
        super().__init__(daemon=True)
        self.election = client.Election(path, name)
        self.release = threading.Event()

    def run(self):
        while True:
            self.election.run(self.lead)

    def lead(self):
        global leader
        leader = self
        say("leads")
        self.release.wait()
        self.release.clear()


clients = [KazooClient(hosts=servers, timeout=session_ms / 1000) for _ in range(count)]
for started in [client.start_async() for client in clients]:
    started.wait()
clients[0].ensure_path(path)
for n, client in enumerate(clients):
    Contender(client, f"m{n}").start()


def wait_for_all():
    while len(clients[0].get_children(path)) < count:
        time.sleep(0.005)


wait_for_all()
say("ready")
for _ in sys.stdin:
    leader.release.set()
    while leader.release.is_set():
        time.sleep(0.001)
    wait_for_all()
    say("back")
