#!/usr/bin/env python3
"""A client of the sidecar in one file, to copy: Python 3.9 or newer on Linux, without a dependency.

    sidecar = Bellwether()                          # http://127.0.0.1:4040, or BELLWETHER_URL
    sidecar.leader()                                # who leads, as {"id": ..., "address": ...}, or None
    sidecar.follow(on_elected, on_lost)             # calls on_elected(token) and on_lost() from a thread of its own
    sidecar.is_leader()                             # right before each side effect
    sidecar.token()                                 # the fencing token; None while this member does not lead
    with sidecar.lock("migrate", wait=5) as lock:   # lock.token; lock.is_held() right before each side effect
        ...

Run it to see it at work: `bellwether.py` works while its member leads, `bellwether.py lock NAME` while it holds a lock.
"""
import http.client, json, logging, os, socket, sys, threading, time, urllib.parse

class Lease:
    """A token, and until when it counts, by the clock that the sidecar and this process share."""

    def __init__(self, token, answer):
        self.token = token
        self.until = answer["valid_until_boottime_ns"]
        if self.left() > answer["valid_for_ms"] / 1000 + 0.001:
            raise ValueError("the sidecar has another clock: it must run on this machine")

    def left(self):
        """Returns the seconds until the lease ends."""
        return (self.until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9

class Bellwether:
    def __init__(self, url=None, command_token=None):
        self.host = urllib.parse.urlsplit(url or os.environ.get("BELLWETHER_URL", "http://127.0.0.1:4040")).netloc
        self.headers = {"Authorization": f"Bearer {command_token}"} if command_token else {"X-Bellwether": "1"}
        self.lease = None

    def leader(self):
        return self._get("/leader", 2).get("leader")

    def follow(self, on_elected=lambda token: None, on_lost=lambda: None):
        """Follows until the process ends. The callbacks must return soon: nothing is renewed meanwhile."""
        threading.Thread(target=self._follow, args=(on_elected, on_lost), daemon=True).start()

    def is_leader(self):
        return self.token() is not None

    def token(self):
        lease = self.lease
        return lease.token if lease and lease.left() > 0 else None

    def lock(self, name, wait=None):
        return Lock(self, name, wait)

    def _get(self, path, timeout):
        connection = http.client.HTTPConnection(self.host, timeout=timeout)
        try:
            connection.request("GET", path)
            return json.load(connection.getresponse())  # also of a 503: no leader is known
        finally:
            connection.close()

    def _follow(self, on_elected, on_lost):
        led, index = None, 0
        while True:
            # While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
            left = self.lease.left() if self.lease else 0
            wait, timeout = (left / 2, left) if left > 0 else (60, 65)
            failed = False
            if self.lease and left <= 0:
                self.lease, index = None, 0  # Ask again at once: the next lease need not be a change.
            else:
                try:
                    answer = self._get(f"/leader?index={index}&wait={int(wait * 1000)}ms", timeout)
                    self.lease = Lease(answer["leader"]["token"], answer) if answer.get("is_self") else None
                    index = int(answer["index"])
                except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
                    # The lease of the last answer still counts.
                    logging.warning("no answer from the sidecar at %s: %r", self.host, error)
                    index, failed = 0, True
            token = self.token()
            if token != led:
                if led is not None:
                    on_lost()
                if token is not None:
                    on_elected(token)
                led = token
            if failed:
                time.sleep(max(0, min(1, self.lease.left() if self.lease else 1)))

class Lock:
    """A lock that is held from `with` to its end, or until the lease ends."""

    def __init__(self, sidecar, name, wait):
        query = "" if wait is None else f"?wait={int(wait * 1000)}ms"
        self.lease, self.failure, self.decided, self.closed = None, None, threading.Event(), False
        connection = http.client.HTTPConnection(sidecar.host, timeout=None if wait is None else wait + 5)
        connection.request("POST", f"/locks/{name}{query}", headers=sidecar.headers)
        self.socket = connection.sock
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()
        decided = self.decided.wait(None if wait is None else wait + 5)
        if self.lease is None:
            self.release()
            raise TimeoutError(self.failure if decided else "the sidecar does not answer")

    def is_held(self):
        lease = self.lease
        return not self.closed and lease is not None and lease.left() > 0

    def release(self):
        self.closed = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # The end of the connection gives the lock back.
        except OSError:
            pass  # The sidecar was first.
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def _read(self, connection):
        event = ""
        try:
            answer = connection.getresponse()
            self.failure = f"the sidecar answers {answer.status}"
            for line in answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    event = value
                elif key == "data" and event in ("held", "renewed"):
                    data = json.loads(value)
                    self.token, self.lease = data["token"], Lease(data["token"], data)
                    self.decided.set()
                elif key == "data" and event in ("lost", "timeout", "refused"):
                    self.failure = json.loads(value)["why"]
                    break
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.failure = repr(error)
        self.lease = None  # Without the connection it is not held.
        self.decided.set()

def work(token):
    print("working with token", token, flush=True)
    time.sleep(0.25)

def main():
    sidecar = Bellwether()
    if sys.argv[1:2] == ["lock"]:
        with sidecar.lock(sys.argv[2]) as lock:
            threading.Thread(target=lambda: (sys.stdin.read(), lock.release()), daemon=True).start()
            while lock.is_held():
                work(lock.token)
        print("no longer held", flush=True)
        return
    elected = threading.Semaphore(0)
    sidecar.follow(lambda token: elected.release(), lambda: print("no longer leading", file=sys.stderr))
    while elected.acquire():
        while token := sidecar.token():
            work(token)

if __name__ == "__main__":
    main()
