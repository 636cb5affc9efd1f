"""One contender of kazoo's Election, told and telling as Contender.java is."""

import sys
import threading
import time

from kazoo.client import KazooClient, KazooState

_, address, path, name, timeout = sys.argv
client = KazooClient(hosts=address, timeout=int(timeout) / 1000)
released = threading.Event()
leads = False
out = threading.Lock()
quits = threading.Event()


def say(line):
    with out:
        print(line, flush=True)


def on_state(state):
    # An application of kazoo's leads only while it is connected.
    if state != KazooState.CONNECTED:
        released.set()


def lead():
    global leads
    released.clear()
    if not client.connected:
        return
    leads = True
    released.wait()
    leads = False


def watch():
    last = 0
    while True:
        before = time.monotonic_ns()
        seen = leads and not released.is_set() and not quits.is_set()
        after = time.monotonic_ns()
        if seen and not last:
            say(f"leads {after}")
        if seen:
            last = before
        elif last:
            say(f"ends {last}")
            last = 0
        if quits.is_set():
            return
        time.sleep(0.001)


def contend():
    while True:
        try:
            client.Election(path, name).run(lead)
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)
            time.sleep(0.1)


client.add_listener(on_state)
client.start()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
threading.Thread(target=contend, daemon=True).start()
for line in sys.stdin:
    if line == "release\n":
        released.set()
    elif line == "quit\n":
        quits.set()
        # Until it has said that it leads no more.
        watcher.join()
        client.stop()
        break
    elif line == "who\n":
        try:
            contenders = client.Election(path).contenders()
            say(f"who {contenders[0] if contenders else '(nobody)'}")
        except Exception as error:
            say(f"who ({error!r})")
