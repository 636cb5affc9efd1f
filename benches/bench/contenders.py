"""kazoo's Election, as a contestant: see contest.rs for what is said and heard."""

import socket
import sys
import threading
import time

from kazoo.client import KazooClient

port, servers, path = sys.argv[1:4]
count, before, total, session_ms = (int(word) for word in sys.argv[4:])
observer = socket.create_connection(("127.0.0.1", int(port)))
observer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
leader = None


def say(word):
    observer.sendall(word.encode() + b"\n")


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
    Contender(client, f"m{before + n}").start()


def wait_for(number):
    while len(clients[0].get_children(path)) < number:
        time.sleep(0.005)


wait_for(before + count)
say("ready")
for order in observer.makefile():
    if order == "release\n":
        leader.release.set()
    else:
        wait_for(total)
        say("back")
