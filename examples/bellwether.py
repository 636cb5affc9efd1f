#!/usr/bin/env python3
"""A client of the sidecar in one file, to copy: Python 3.9 or newer on Linux, without a dependency.

    sidecar = Bellwether()                          # http://127.0.0.1:4040, or BELLWETHER_URL
    sidecar.leader()                                # who leads, as {"id": ..., "address": ...}, or None
    sidecar.follow(on_elected, on_lost)             # calls on_elected(token) and on_lost() from a thread of its own
    sidecar.is_leader()                             # right before each side effect
    sidecar.token()                                 # the fencing token; None while this member does not lead
    with sidecar.lock("migrate", wait=5) as lock:   # lock.token; lock.is_held() right before each side effect
        ...

The store keeps the tokens of the election, and of each lock, in a column of its own: a leader's token dates from its joining, so
it may be smaller than that of an earlier lock.

Run it to see it at work: `bellwether.py` works while its member leads, `bellwether.py lock NAME [SECONDS]` while it holds a lock,
for which it waits so long, and gives that back when its standard input ends.
"""
import http.client, json, logging, os, re, socket, sys, threading, time

class AnswerError(OSError):
    """An answer of the sidecar that is none to what was asked; `detail` is None if it says nothing."""

    def __init__(self, request, status, body):
        self.status, self.detail = status, body.get("detail")
        super().__init__(f"{request} is answered with {status}: {self.detail or 'is that a sidecar?'}")

class Lease:
    """A token, until when it counts, by the clock that the sidecar and this process share, and how often to renew it."""

    def __init__(self, token, answer):
        self.token = token
        self.interval = answer["valid_for_ms"] / 1000 / 4
        self.until = answer["valid_until_boottime_ns"]
        if self.left() > answer["valid_for_ms"] / 1000 + 0.001:
            raise ValueError("the sidecar has another clock: it must run on this machine")

    def left(self):
        """Returns the seconds until the lease ends."""
        return (self.until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9

class Connection(http.client.HTTPConnection):
    """A connection with a sidecar at http://HOST:PORT, HOST:PORT, HOST, :PORT, PORT or unix:PATH."""

    def __init__(self, url, timeout=None):
        self.path = url[5:] if url.startswith("unix:/") else None
        url = f":{url}" if url.isdigit() else url
        parts = re.fullmatch(r"(http://)?(\[[0-9A-Fa-f:.]+]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?/?", url)
        if self.path:
            super().__init__("localhost", timeout=timeout)
        elif parts and (parts[2] or parts[3] and not parts[1]):
            super().__init__((parts[2] or "127.0.0.1").strip("[]"), int(parts[3] or (80 if parts[1] else 4040)), timeout=timeout)
        else:
            raise ValueError(f"{url!r} is not a sidecar's address: write http://HOST:PORT or unix:PATH")

    def connect(self):
        if self.path is None:
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

class Bellwether:
    def __init__(self, url=None, command_token=None):
        self.url = url or os.environ.get("BELLWETHER_URL", "http://127.0.0.1:4040")
        Connection(self.url)  # Refuses what is not an address.
        self.headers = {"Authorization": f"Bearer {command_token}"} if command_token else {"X-Bellwether": "1"}
        self.lease = None

    def leader(self):
        return self._get("/leader", 2).get("leader")

    def follow(self, on_elected=lambda token: None, on_lost=lambda: None):
        """Follows until the process ends, in a daemon thread of its own. The callbacks run there, one at a time, and must return
        soon: nothing is renewed meanwhile. What they raise is logged."""
        threading.Thread(target=self._follow, args=(on_elected, on_lost), daemon=True).start()

    def is_leader(self):
        return self.token() is not None

    def token(self):
        lease = self.lease
        return lease.token if lease and lease.left() > 0 else None

    def lock(self, name, wait=None):
        """Waits for the lock, without a limit if `wait` is None, and beside a frozen sidecar for five seconds more: call it in a
        thread of its own. Raises TimeoutError if it was not got in time, and AnswerError if the sidecar refuses it."""
        return Lock(self, name, wait)

    def _get(self, path, timeout):
        connection, until = Connection(self.url, timeout), time.monotonic() + timeout
        try:
            connection.request("GET", path)
            sock = connection.sock
            answer = connection.getresponse()
            sock.settimeout(max(0.001, until - time.monotonic()))  # For the body there is the rest of the time.
            body = _object(answer)
        finally:
            connection.close()
        is_known = answer.status == 200 and "leader" in body
        is_unknown = answer.status == 503 and str(body.get("type")).endswith("no-leader")
        if not is_known and not is_unknown:
            raise AnswerError(f"GET {path} at {self.url}", answer.status, body)
        return body

    def _follow(self, on_elected, on_lost):
        led, index, reported = None, 0, ""
        while True:
            # While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
            left = self.lease.left() if self.lease else 0
            wait, timeout = (min(left / 2, self.lease.interval), left) if left > 0 else (60, 65)
            failed = False
            if self.lease and left <= 0:
                self.lease, index = None, 0  # Ask again at once: the next lease need not be a change.
            else:
                try:
                    answer = self._get(f"/leader?index={index}&wait={int(wait * 1000)}ms", timeout)
                    self.lease = Lease(answer["leader"]["token"], answer) if answer.get("is_self") else None
                    if "index" not in answer:
                        raise ValueError(f"it has not joined: {answer.get('detail')}")
                    index, reported = int(answer["index"]), ""
                except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
                    # Without an answer, the lease of the last one still counts.
                    # In the last second of a lease, the sidecar had too little time to answer.
                    if timeout >= 1 and reported != repr(error):
                        logging.warning("the sidecar at %s gives no good answer, asking again: %r", self.url, error)
                        reported = repr(error)
                    index, failed = 0, True
            token = self.token()
            if token != led:
                if led is not None:
                    _call(on_lost)
                if token is not None:
                    _call(on_elected, token)
                led = token
            if failed:
                time.sleep(max(0, min(1, self.lease.left() if self.lease else 1)))

def _object(answer):
    """Returns the object, without fields if the answer is not the JSON of one."""
    try:
        body = json.load(answer)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}

def _call(callback, *arguments):
    try:
        callback(*arguments)
    except BaseException:  # It must not end the thread.
        logging.exception("a callback failed")

class Lock:
    """A lock that is held from `with` to its end, or until the lease ends."""

    def __init__(self, sidecar, name, wait):
        if not re.fullmatch("[A-Za-z0-9._-]{1,64}", name) or name in (".", ".."):
            raise ValueError(f"{name!r} is not a lock's name: write 1 to 64 of A-Z a-z 0-9 . _ -")
        self.request = f"POST /locks/{name}"
        query = "" if wait is None else f"?wait={int(wait * 1000)}ms"
        self.lease, self.failure, self.decided, self.closed = None, None, threading.Event(), False
        limit = None if wait is None else wait + 5
        connection = Connection(sidecar.url, limit)
        connection.connect()
        self.socket = connection.sock
        try:
            connection.request("POST", f"/locks/{name}{query}", headers=sidecar.headers)
            self.socket.settimeout(None)  # A lock that is held may be silent for as long as its lease lasts.
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()
            decided = self.decided.wait(limit)
            if self.lease is None:
                raise self.failure if decided else TimeoutError("the sidecar does not answer")
        except BaseException:  # Also a KeyboardInterrupt.
            self.release()
            raise

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
            if answer.status != 200:
                raise AnswerError(self.request, answer.status, _object(answer))
            self.failure = ConnectionError("the sidecar has closed the connection")
            for line in answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    event = value
                elif key == "data" and event in ("held", "renewed"):
                    data = json.loads(value)
                    self.token, self.lease = data["token"], Lease(data["token"], data)
                    self.decided.set()
                elif key == "data" and event in ("lost", "timeout", "refused"):
                    why = json.loads(value)["why"]
                    if event == "refused":
                        raise AnswerError(self.request, 409, {"detail": why})
                    self.failure = TimeoutError(why) if event == "timeout" else ConnectionError(why)
                    break
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.failure = error
        self.lease = None  # Without the connection it is not held.
        self.release()
        self.decided.set()

def work(token):
    print("working with token", token, flush=True)
    time.sleep(0.25)

def main():
    sidecar = Bellwether()
    if sys.argv[1:2] == ["lock"]:
        wait = int(sys.argv[3]) if len(sys.argv) > 3 else None
        with sidecar.lock(sys.argv[2], wait) as lock:
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
