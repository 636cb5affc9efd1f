import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/** Curator's InterProcessMutex: see locks.rs for what is said and heard. */
public class Mutex {
    static OutputStream out;

    static class Application extends Thread {
        final InterProcessMutex mutex;
        final int number;
        final BlockingQueue<String> orders = new LinkedBlockingQueue<>();

        Application(CuratorFramework client, String path, int number) {
            this.mutex = new InterProcessMutex(client, path);
            this.number = number;
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                while (true) {
                    orders.take();
                    mutex.acquire();
                    say("held " + number);
                    orders.take();
                    mutex.release();
                }
            } catch (Exception failed) {
                failed.printStackTrace();
                System.exit(1);
            }
        }
    }

    static synchronized void say(String word) {
        try {
            out.write((word + "\n").getBytes(StandardCharsets.US_ASCII));
            out.flush();
        } catch (java.io.IOException receiverGone) {
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[0]));
        socket.setTcpNoDelay(true);
        out = socket.getOutputStream();
        int crowd = Integer.parseInt(arguments[3]);
        int session = Integer.parseInt(arguments[4]);
        List<CuratorFramework> clients = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            CuratorFramework client =
                    CuratorFrameworkFactory.newClient(arguments[1], session, session, new RetryNTimes(10, 100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        List<Application> applications = new ArrayList<>();
        for (int n = 0; n < crowd; n++) {
            Application application = new Application(clients.get(n % 2), arguments[2], n);
            application.start();
            applications.add(application);
        }
        say("ready");
        Scanner orders = new Scanner(socket.getInputStream());
        while (orders.hasNextLine()) {
            String[] words = orders.nextLine().split(" ");
            applications.get(Integer.parseInt(words[1])).orders.add(words[0]);
        }
        System.exit(0);
    }
}
