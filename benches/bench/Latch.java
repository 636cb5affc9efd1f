import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryNTimes;

/** Curator's LeaderLatch, as a contestant: see contest.rs for what is said and heard. */
public class Latch {
    static String path;
    static volatile Contender leader;

    static class Contender implements LeaderLatchListener {
        final CuratorFramework client;
        LeaderLatch latch;

        Contender(CuratorFramework client) {
            this.client = client;
        }

        void join() throws Exception {
            latch = new LeaderLatch(client, path);
            latch.addListener(this);
            latch.start();
        }

        @Override
        public void isLeader() {
            leader = this;
            say("leads");
        }

        @Override
        public void notLeader() {}
    }

    static synchronized void say(String word) {
        System.out.println(word);
        System.out.flush();
    }

    static void waitFor(CuratorFramework client, int count) throws Exception {
        while (client.checkExists().forPath(path) == null || client.getChildren().forPath(path).size() < count) {
            Thread.sleep(5);
        }
    }

    public static void main(String[] arguments) throws Exception {
        path = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        int session = Integer.parseInt(arguments[3]);
        List<Contender> contenders = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            CuratorFramework client =
                    CuratorFrameworkFactory.newClient(arguments[0], session, session, new RetryNTimes(10, 100));
            client.start();
            contenders.add(new Contender(client));
        }
        for (Contender contender : contenders) {
            contender.client.blockUntilConnected();
            contender.join();
        }
        CuratorFramework first = contenders.get(0).client;
        waitFor(first, count);
        say("ready");
        Scanner orders = new Scanner(System.in);
        while (orders.hasNextLine()) {
            orders.nextLine();
            Contender leaving = leader;
            leaving.latch.close();
            leaving.join();
            waitFor(first, count);
            say("back");
        }
    }
}
