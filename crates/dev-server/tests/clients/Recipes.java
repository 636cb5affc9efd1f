import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.CreateMode;

/** The recipes of Curator, each with two clients, on the server that is named. Prints the name of each that works. */
public class Recipes {
    /** Longer than anything takes on a busy machine. */
    private static final int PATIENCE_S = 30;

    private interface Recipe {
        void run(CuratorFramework a, CuratorFramework b) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        run(arguments[0], "LeaderLatch", Recipes::leaderLatch);
        run(arguments[0], "LeaderSelector", Recipes::leaderSelector);
        run(arguments[0], "InterProcessMutex", Recipes::mutex);
        run(arguments[0], "DistributedDoubleBarrier", Recipes::doubleBarrier);
        run(arguments[0], "PersistentNode", Recipes::persistentNode);
        run(arguments[0], "DistributedAtomicLong", Recipes::atomicLong);
        run(arguments[0], "CuratorCache", Recipes::cache);
        run(arguments[0], "CuratorTransaction", Recipes::transaction);
        System.exit(0);
    }

    private static void run(String address, String name, Recipe recipe) throws Exception {
        try (CuratorFramework a = started(address); CuratorFramework b = started(address)) {
            recipe.run(a, b);
        }
        System.out.println(name);
    }

    private static CuratorFramework started(String address) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, 10_000, 10_000, new RetryForever(100));
        client.start();
        check(client.blockUntilConnected(PATIENCE_S, TimeUnit.SECONDS), "it connects");
        return client;
    }

    private static void leaderLatch(CuratorFramework a, CuratorFramework b) throws Exception {
        LeaderLatch first = new LeaderLatch(a, "/latch", "a");
        first.start();
        check(first.await(PATIENCE_S, TimeUnit.SECONDS), "the first leads");
        LeaderLatch second = new LeaderLatch(b, "/latch", "b");
        second.start();
        check(!second.await(200, TimeUnit.MILLISECONDS), "the second waits");
        check(second.getLeader().getId().equals("a"), "both know who leads");
        first.close();
        check(second.await(PATIENCE_S, TimeUnit.SECONDS), "the second leads");
        second.close();
    }

    private static void leaderSelector(CuratorFramework a, CuratorFramework b) throws Exception {
        BlockingQueue<String> led = new LinkedBlockingQueue<>();
        CountDownLatch go = new CountDownLatch(1);
        try (LeaderSelector first = selector(a, "a", led, go); LeaderSelector second = selector(b, "b", led, go)) {
            first.start();
            check("a".equals(led.poll(PATIENCE_S, TimeUnit.SECONDS)), "the first leads");
            second.start();
            check(led.poll(200, TimeUnit.MILLISECONDS) == null, "the second waits");
            go.countDown();
            check("b".equals(led.poll(PATIENCE_S, TimeUnit.SECONDS)), "the second leads");
        }
    }

    private static LeaderSelector selector(
            CuratorFramework client, String name, BlockingQueue<String> led, CountDownLatch go) {
        return new LeaderSelector(client, "/selector", new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework ignored) throws Exception {
                led.put(name);
                go.await();
            }
        });
    }

    private static void mutex(CuratorFramework a, CuratorFramework b) throws Exception {
        InterProcessMutex first = new InterProcessMutex(a, "/mutex");
        InterProcessMutex second = new InterProcessMutex(b, "/mutex");
        check(first.acquire(PATIENCE_S, TimeUnit.SECONDS), "it is free");
        check(first.acquire(PATIENCE_S, TimeUnit.SECONDS), "it is reentrant");
        check(!second.acquire(200, TimeUnit.MILLISECONDS), "it is held");
        first.release();
        first.release();
        check(second.acquire(PATIENCE_S, TimeUnit.SECONDS), "it is free again");
        second.release();
    }

    private static void doubleBarrier(CuratorFramework a, CuratorFramework b) throws Exception {
        DistributedDoubleBarrier mine = new DistributedDoubleBarrier(a, "/barrier", 2);
        DistributedDoubleBarrier theirs = new DistributedDoubleBarrier(b, "/barrier", 2);
        BlockingQueue<String> passed = new LinkedBlockingQueue<>();
        Thread other = new Thread(() -> {
            try {
                check(theirs.enter(PATIENCE_S, TimeUnit.SECONDS), "the other enters");
                check(theirs.leave(PATIENCE_S, TimeUnit.SECONDS), "the other leaves");
                passed.put("it");
            } catch (Exception problem) {
                problem.printStackTrace();
            }
        });
        other.setDaemon(true);
        other.start();
        check(mine.enter(PATIENCE_S, TimeUnit.SECONDS), "it enters");
        check(mine.leave(PATIENCE_S, TimeUnit.SECONDS), "it leaves");
        check(passed.poll(PATIENCE_S, TimeUnit.SECONDS) != null, "so does the other");
    }

    private static void persistentNode(CuratorFramework a, CuratorFramework b) throws Exception {
        PersistentNode node = new PersistentNode(a, CreateMode.EPHEMERAL, false, "/persistent", bytes("own"));
        node.start();
        check(node.waitForInitialCreate(PATIENCE_S, TimeUnit.SECONDS), "it is created");
        long before = b.checkExists().forPath("/persistent").getCzxid();
        BlockingQueue<Long> made = new LinkedBlockingQueue<>();
        CuratorCache cache = CuratorCache.build(b, "/persistent");
        cache.listenable().addListener(
                CuratorCacheListener.builder().forCreates(it -> made.add(it.getStat().getCzxid())).build());
        cache.start();
        check(made.poll(PATIENCE_S, TimeUnit.SECONDS) == before, "the other sees it");
        b.delete().forPath("/persistent");
        check(made.poll(PATIENCE_S, TimeUnit.SECONDS) > before, "it is created again");
        cache.close();
        node.close();
        check(b.checkExists().forPath("/persistent") == null, "it goes with its owner");
    }

    private static void atomicLong(CuratorFramework a, CuratorFramework b) throws Exception {
        RetryForever retry = new RetryForever(10);
        DistributedAtomicLong mine = new DistributedAtomicLong(a, "/long", retry);
        DistributedAtomicLong theirs = new DistributedAtomicLong(b, "/long", retry);
        for (int n = 0; n < 10; n++) {
            check(mine.increment().succeeded() && theirs.add(2L).succeeded(), "it counts");
        }
        check(mine.get().postValue() == 30, "both count");
    }

    private static void cache(CuratorFramework a, CuratorFramework b) throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        CuratorCache cache = CuratorCache.build(a, "/cache");
        cache.listenable().addListener((kind, before, after) ->
                heard.add(kind + " " + (after == null ? before : after).getPath()));
        cache.start();
        // Each is waited for: a cache reads what is there when it is told that something was.
        b.create().forPath("/cache", bytes("one"));
        hears(heard, "NODE_CREATED /cache");
        b.create().creatingParentContainersIfNeeded().forPath("/cache/deep/down", bytes("one"));
        hears(heard, "NODE_CREATED /cache/deep");
        hears(heard, "NODE_CREATED /cache/deep/down");
        b.setData().forPath("/cache/deep/down", bytes("two"));
        hears(heard, "NODE_CHANGED /cache/deep/down");
        b.delete().deletingChildrenIfNeeded().forPath("/cache");
        hears(heard, "NODE_DELETED /cache/deep/down");
        hears(heard, "NODE_DELETED /cache/deep");
        hears(heard, "NODE_DELETED /cache");
        cache.close();
    }

    private static void hears(BlockingQueue<String> heard, String wanted) throws Exception {
        String next = heard.poll(PATIENCE_S, TimeUnit.SECONDS);
        check(wanted.equals(next), wanted + ", but " + next);
    }

    private static void transaction(CuratorFramework a, CuratorFramework b) throws Exception {
        a.transaction().forOperations(
                a.transactionOp().create().forPath("/transaction", bytes("made")),
                a.transactionOp().check().withVersion(0).forPath("/transaction"),
                a.transactionOp().setData().forPath("/transaction", bytes("set")));
        check(b.checkExists().forPath("/transaction").getVersion() == 1, "all of it is done");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }
}
