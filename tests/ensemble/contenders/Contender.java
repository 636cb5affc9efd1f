import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport;

/**
 * One contender of a client's own election. It takes lines: "release" and "who". It prints "leads NS" and "ends
 * NS" with the first and the last moment at which it saw that it leads, by CLOCK_MONOTONIC, and "who ID".
 */
public class Contender {
    private interface Elector {
        boolean leads() throws Exception;

        void release() throws Exception;

        String leader() throws Exception;

        void close() throws Exception;
    }

    private static volatile boolean quits;

    public static void main(String[] arguments) throws Exception {
        String family = arguments[0];
        String address = arguments[1];
        String path = arguments[2];
        String id = arguments[3];
        int timeout = Integer.parseInt(arguments[4]);
        CuratorFramework client = null;
        Elector elector;
        if (family.equals("zookeeper-recipe")) {
            elector = new Recipe(address, path, id, timeout);
        } else {
            client = CuratorFrameworkFactory.newClient(address, timeout, timeout, new RetryForever(50));
            client.start();
            elector = family.equals("curator-latch") ? new Latch(client, path, id) : new Selector(client, path, id);
        }
        Thread watch = new Thread(() -> watch(elector));
        watch.setDaemon(true);
        watch.setPriority(Thread.MAX_PRIORITY);
        watch.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                if (line.equals("release")) {
                    elector.release();
                } else if (line.equals("who")) {
                    System.out.println("who " + elector.leader());
                } else if (line.equals("quit")) {
                    quits = true;
                    // Until it has said that it leads no more.
                    watch.join();
                    elector.close();
                    System.exit(0);
                }
            } catch (Exception e) {
                System.out.println("who (" + e.getClass().getSimpleName() + ")");
            }
            System.out.flush();
        }
        System.exit(0);
    }

    /** Looks all the time, so that both moments are proven. */
    private static void watch(Elector elector) {
        long last = 0;
        while (true) {
            try {
                long before = System.nanoTime();
                boolean leads = !quits && elector.leads();
                long after = System.nanoTime();
                if (leads && last == 0) {
                    System.out.println("leads " + after);
                    System.out.flush();
                }
                if (leads) {
                    last = before;
                } else if (last != 0) {
                    System.out.println("ends " + last);
                    System.out.flush();
                    last = 0;
                }
                if (quits) {
                    return;
                }
                Thread.sleep(1);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static class Latch implements Elector {
        private final CuratorFramework client;
        private final String path;
        private final String id;
        private volatile LeaderLatch latch;

        Latch(CuratorFramework client, String path, String id) throws Exception {
            this.client = client;
            this.path = path;
            this.id = id;
            latch = started();
        }

        private LeaderLatch started() throws Exception {
            LeaderLatch started = new LeaderLatch(client, path, id);
            started.start();
            return started;
        }

        public boolean leads() {
            return latch.hasLeadership();
        }

        public void release() throws Exception {
            latch.close();
            latch = started();
        }

        public String leader() throws Exception {
            return latch.getLeader().getId();
        }

        public void close() {
            client.close();
        }
    }

    private static class Selector implements Elector {
        private final LeaderSelector selector;
        private volatile CountDownLatch done = new CountDownLatch(1);

        private final CuratorFramework client;

        Selector(CuratorFramework client, String path, String id) {
            this.client = client;
            selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework ignored) throws Exception {
                    CountDownLatch mine = new CountDownLatch(1);
                    done = mine;
                    mine.await();
                }
            });
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
        }

        public boolean leads() {
            return selector.hasLeadership();
        }

        public void release() {
            done.countDown();
        }

        public String leader() throws Exception {
            return selector.getLeader().getId();
        }

        public void close() {
            client.close();
        }
    }

    /** What LeaderElectionSupport leaves to its application: it leads only while connected, and starts over with a session. */
    private static class Recipe implements Elector {
        private final String address;
        private final String path;
        private final String id;
        private final int timeout;
        private volatile boolean connected;
        private volatile boolean elected;
        private volatile LeaderElectionSupport support;
        private volatile ZooKeeper client;

        Recipe(String address, String path, String id, int timeout) throws Exception {
            this.address = address;
            this.path = path;
            this.id = id;
            this.timeout = timeout;
            connect();
        }

        private synchronized void connect() throws Exception {
            CountDownLatch opened = new CountDownLatch(1);
            client = new ZooKeeper(address, timeout, event -> heard(event, opened));
            opened.await();
            begin();
        }

        private void heard(WatchedEvent event, CountDownLatch opened) {
            connected = event.getState() == KeeperState.SyncConnected;
            if (connected) {
                opened.countDown();
            }
            if (event.getState() == KeeperState.Expired) {
                elected = false;
                new Thread(() -> {
                    try {
                        connect();
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                }).start();
            }
        }

        private void begin() {
            LeaderElectionSupport begun = new LeaderElectionSupport();
            begun.setZooKeeper(client);
            begun.setRootNodeName(path);
            begun.setHostName(id);
            begun.addListener(event -> {
                if (begun == support) {
                    elected = event == LeaderElectionSupport.EventType.ELECTED_COMPLETE;
                }
            });
            support = begun;
            begun.start();
        }

        public boolean leads() {
            return connected && elected;
        }

        public synchronized void release() {
            elected = false;
            support.stop();
            begin();
        }

        public String leader() throws Exception {
            return support.getLeaderHostName();
        }

        public void close() throws Exception {
            client.close();
        }
    }
}
