"""kazoo's Lock: see locks.rs for what is said and heard."""

import queue
import socket
import sys
import threading

from kazoo.client import KazooClient

port, servers, path = sys.argv[1:4]
crowd, session_ms = (int(word) for word in sys.argv[4:])
observer = socket.create_connection(("127.0.0.1", int(port)))
observer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
saying = threading.Lock()


def say(word):
    with saying:
        observer.sendall(word.encode() + b"\n")


class Application(threading.Thread):
    def __init__(self, client, number):
        super().__init__(daemon=True)
        self.lock = client.Lock(path, str(number))
        self.number = number
        self.orders = queue.SimpleQueue()

    def run(self):
        while True:
            self.orders.get()
            self.lock.acquire()
            say(f"held {self.number}")
            self.orders.get()
            self.lock.release()


clients = [KazooClient(hosts=servers, timeout=session_ms / 1000) for _ in range(2)]
for client in clients:
    client.start()
clients[0].ensure_path(path)
applications = [Application(clients[n % 2], n) for n in range(crowd)]
for application in applications:
    application.start()
say("ready")
for line in observer.makefile():
    order, number = line.split()
    applications[int(number)].orders.put(order)
