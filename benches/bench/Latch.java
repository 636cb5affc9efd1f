import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
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
    static OutputStream out;
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
        try {
            out.write((word + "\n").getBytes(StandardCharsets.US_ASCII));
            out.flush();
        } catch (java.io.IOException receiverGone) {
            System.exit(1);
        }
    }

    static void waitFor(CuratorFramework client, int count) throws Exception {
        while (client.checkExists().forPath(path) == null || client.getChildren().forPath(path).size() < count) {
            Thread.sleep(5);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[0]));
        socket.setTcpNoDelay(true);
        out = socket.getOutputStream();
        path = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        int before = Integer.parseInt(arguments[4]);
        int all = Integer.parseInt(arguments[5]);
        int session = Integer.parseInt(arguments[6]);
        List<Contender> contenders = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            CuratorFramework client =
                    CuratorFrameworkFactory.newClient(arguments[1], session, session, new RetryNTimes(10, 100));
            client.start();
            contenders.add(new Contender(client));
        }
        for (Contender contender : contenders) {
            contender.client.blockUntilConnected();
            contender.join();
        }
        CuratorFramework first = contenders.get(0).client;
        waitFor(first, before + count);
        say("ready");
        Scanner orders = new Scanner(socket.getInputStream());
        while (orders.hasNextLine()) {
            if (orders.nextLine().equals("release")) {
                Contender leaving = leader;
                leaving.latch.close();
                leaving.join();
            } else {
                waitFor(first, all);
                say("back");
            }
        }
        System.exit(0);
    }
}
