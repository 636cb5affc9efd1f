"""The recipes of kazoo, each with two clients, on the server that is named. Prints the name of each that works."""

import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, LockTimeout, NodeExistsError, RolledBackError, RuntimeInconsistency
from kazoo.recipe.barrier import Barrier, DoubleBarrier
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.partitioner import PartitionState
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

# Longer than anything takes on a busy machine.
PATIENCE = 30


def started(address, **options):
    client = KazooClient(address, timeout=10, connection_retry=KazooRetry(max_tries=-1), **options)
    client.start(PATIENCE)
    return client


def in_background(act):
    """Returns a thread whose join shows what went wrong in it."""
    problems = queue.Queue()

    def run():
        try:
            act()
        except BaseException as problem:
            problems.put(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it hangs"
        if not problems.empty():
            raise problems.get()

    return join


def until(what, holds):
    """Waits for what the other client brings about, in steps that are no race: `holds` decides."""
    waited = threading.Event()
    for _ in range(PATIENCE * 50):
        if holds():
            return
        waited.wait(0.02)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


def election(a, b):
    led, go = queue.Queue(), threading.Event()
    first = a.Election("/election", "a")
    second = b.Election("/election", "b")

    def lead(who):
        led.put(who)
        go.wait(PATIENCE)

    join_first = in_background(lambda: first.run(lead, "a"))
    assert led.get(timeout=PATIENCE) == "a"
    join_second = in_background(lambda: second.run(lead, "b"))
    until("both contend", lambda: first.contenders() == ["a", "b"])
    go.set()
    join_first()
    assert led.get(timeout=PATIENCE) == "b"
    join_second()


def lock(a, b):
    first, second = a.Lock("/lock", "a"), b.Lock("/lock", "b")
    assert first.acquire(timeout=PATIENCE)
    assert not second.acquire(blocking=False)
    try:
        second.acquire(timeout=0.2)
        raise AssertionError("it is held")
    except LockTimeout:
        pass
    join = in_background(lambda: second.acquire(timeout=PATIENCE))
    until("both contend", lambda: first.contenders() == ["a", "b"])
    first.release()
    join()
    assert second.is_acquired
    second.release()


def read_and_write_locks(a, b):
    readers = a.ReadLock("/rw"), b.ReadLock("/rw")
    assert all(reader.acquire(timeout=PATIENCE) for reader in readers)
    writer = a.WriteLock("/rw")
    assert not writer.acquire(blocking=False)
    readers[0].release()
    join = in_background(lambda: writer.acquire(timeout=PATIENCE))
    readers[1].release()
    join()
    assert not readers[1].acquire(blocking=False)
    writer.release()


def semaphore(a, b):
    one, two, three = (it.Semaphore("/semaphore", max_leases=2) for it in (a, b, b))
    assert one.acquire(timeout=PATIENCE) and two.acquire(timeout=PATIENCE)
    assert not three.acquire(blocking=False)
    one.release()
    assert three.acquire(timeout=PATIENCE)
    two.release()
    three.release()


def barrier(a, b):
    mine, theirs = Barrier(a, "/barrier"), Barrier(b, "/barrier")
    mine.create()
    assert not theirs.wait(timeout=0.2)
    waited = []
    join = in_background(lambda: waited.append(theirs.wait(timeout=PATIENCE)))
    assert mine.remove()
    join()
    assert waited == [True]


def double_barrier(a, b):
    mine, theirs = DoubleBarrier(a, "/double", 2), DoubleBarrier(b, "/double", 2)
    join = in_background(mine.enter)
    theirs.enter()
    join()
    assert mine.participating and theirs.participating
    join = in_background(mine.leave)
    theirs.leave()
    join()
    assert a.get_children("/double") == []


def counter(a, b):
    counters = [it.Counter("/counter", default=0) for it in (a, b)]

    def count(it):
        for _ in range(20):
            it += 1

    for join in [in_background(lambda it=it: count(it)) for it in counters]:
        join()
    assert counters[0].value == counters[1].value == 40
    decimal = a.Counter("/decimal", default=0.5)
    decimal -= 1.5
    assert b.Counter("/decimal", default=0.5).value == -1.0


def queues(a, b):
    mine, theirs = a.Queue("/queue"), b.Queue("/queue")
    mine.put(b"later", priority=200)
    mine.put(b"one")
    mine.put(b"two")
    assert [theirs.get() for _ in range(4)] == [b"one", b"two", b"later", None]
    mine, theirs = a.LockingQueue("/locking"), b.LockingQueue("/locking")
    mine.put_all([b"item"])
    assert theirs.get(timeout=PATIENCE) == b"item"
    assert mine.get(timeout=0.2) is None
    assert theirs.holds_lock() and theirs.consume()
    assert len(mine) == 0


def partitioner(a, b):
    things = [f"thing-{n}" for n in range(5)]
    options = {"set": things, "time_boundary": 0.5}
    shares = [it.SetPartitioner("/partitioner", identifier=name, **options) for it, name in ((a, "a"), (b, "b"))]

    def turn():
        for share in shares:
            if share.state == PartitionState.RELEASE:
                share.release_set()
        return all(share.state == PartitionState.ACQUIRED for share in shares) and all(map(list, shares))

    until("each has its share", turn)
    assert sorted([*shares[0], *shares[1]]) == things
    for share in shares:
        share.finish()


def party(a, b):
    mine, theirs = a.Party("/party", "a"), b.Party("/party", "b")
    mine.join()
    theirs.join()
    assert sorted(mine) == ["a", "b"] and len(theirs) == 2
    theirs.leave()
    assert list(mine) == ["a"]
    shallow = b.ShallowParty("/shallow", "b")
    shallow.join()
    assert list(a.ShallowParty("/shallow")) == ["b"]


def data_watch(a, b):
    seen = queue.Queue()
    a.DataWatch("/watched", lambda data, stat, event: seen.put((data, stat and stat.version, event and event.type)))
    assert seen.get(timeout=PATIENCE) == (None, None, None)
    b.create("/watched", b"one")
    assert seen.get(timeout=PATIENCE) == (b"one", 0, "CREATED")
    b.set("/watched", b"two")
    assert seen.get(timeout=PATIENCE) == (b"two", 1, "CHANGED")
    b.delete("/watched")
    assert seen.get(timeout=PATIENCE) == (None, None, "DELETED")


def children_watch(a, b):
    seen = queue.Queue()
    b.create("/parent")
    a.ChildrenWatch("/parent", lambda children: seen.put(sorted(children)))
    assert seen.get(timeout=PATIENCE) == []
    b.create("/parent/x")
    assert seen.get(timeout=PATIENCE) == ["x"]
    b.create("/parent/y")
    assert seen.get(timeout=PATIENCE) == ["x", "y"]
    b.delete("/parent/x")
    assert seen.get(timeout=PATIENCE) == ["y"]


def transactions(a, b):
    transaction = a.transaction()
    transaction.create("/transaction", b"made")
    transaction.check("/transaction", 0)
    transaction.set_data("/transaction", b"set")
    path, checked, stat = transaction.commit()
    assert (path, checked, stat.version) == ("/transaction", True, 1)
    transaction = b.transaction()
    transaction.set_data("/transaction", b"lost")
    transaction.check("/transaction", 7)
    transaction.delete("/transaction")
    results = [type(result) for result in transaction.commit()]
    assert results == [RolledBackError, BadVersionError, RuntimeInconsistency], results
    assert b.get("/transaction")[0] == b"set"


def tree_cache(a, b):
    cache, events = TreeCache(a, "/tree"), queue.Queue()
    cache.listen(events.put)
    cache.start()

    def heard(kind, path=None):
        while True:
            event = events.get(timeout=PATIENCE)
            if event.event_type == kind and (path is None or event.event_data.path == path):
                return

    heard(TreeEvent.INITIALIZED)
    b.ensure_path("/tree/deep/down")
    heard(TreeEvent.NODE_ADDED, "/tree/deep/down")
    b.set("/tree/deep/down", b"new")
    heard(TreeEvent.NODE_UPDATED, "/tree/deep/down")
    assert cache.get_data("/tree/deep/down").data == b"new"
    b.delete("/tree", recursive=True)
    heard(TreeEvent.NODE_REMOVED, "/tree")
    cache.close()


def sessions_and_access(a, b):
    a.create("/own", b"secret", acl=[make_digest_acl("u", "p", all=True)])
    a.add_auth("digest", "u:p")
    assert a.get("/own")[0] == b"secret"
    b.create("/gone", ephemeral=True)
    b.restart()
    until("what was ephemeral is gone", lambda: a.exists("/gone") is None)
    for _ in range(2):
        try:
            b.create("/own")
        except NodeExistsError:
            pass
    assert a.command(b"ruok") == "imok" and a.server_version()[:2] == (3, 8)


RECIPES = [
    election, lock, read_and_write_locks, semaphore, barrier, double_barrier, counter, queues, partitioner, party,
    data_watch, children_watch, transactions, tree_cache, sessions_and_access,
]


def main():
    for recipe in RECIPES:
        a, b = started(sys.argv[1]), started(sys.argv[1])
        recipe(a, b)
        for client in (a, b):
            client.stop()
            client.close()
        print(recipe.__name__, flush=True)


main()
