import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongConsumer;
import java.util.regex.Pattern;

/**
 * A client of the sidecar in one file, to copy: Java 17 or newer on Linux, without a dependency. Give it your package.
 *
 * <pre>{@code
 * var sidecar = new Bellwether();                  // http://127.0.0.1:4040, or BELLWETHER_URL
 * sidecar.leader();                                // who leads, as {id=..., address=...}, or null
 * sidecar.follow(token -> start(), () -> stop());  // called when this member begins and ceases to lead
 * sidecar.isLeader();                              // right before each side effect
 * sidecar.token();                                 // the fencing token; 0 while this member does not lead
 * try (var lock = sidecar.lock("migrate", Duration.ofSeconds(5))) {
 *     lock.isHeld();                               // right before each side effect; lock.token()
 * }
 * }</pre>
 *
 * The store keeps the tokens of the election, and of each lock, in a column of its own: a leader's token dates from its joining,
 * so it may be smaller than that of an earlier lock.
 *
 * Run it to see it at work: {@code java Bellwether.java} works while its member leads, {@code java Bellwether.java lock NAME
 * [SECONDS]} while it holds a lock, for which it waits so long, and gives that back when its standard input ends.
 */
public final class Bellwether {
    private static final System.Logger LOG = System.getLogger("bellwether");
    private static final Pattern ADDRESS =
            Pattern.compile("(http://)?(\\[[0-9A-Fa-f:.]+]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?/?");

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String url;
    private final String[] commandHeader;
    private volatile Lease lease;

    public Bellwether() {
        this(System.getenv().getOrDefault("BELLWETHER_URL", "http://127.0.0.1:4040"), null);
    }

    /**
     * The {@code url} is http://HOST:PORT, HOST:PORT, HOST, :PORT or PORT. Where the sidecar has a token file, its
     * {@code commandToken} is needed for locks.
     */
    public Bellwether(String url, String commandToken) {
        this.url = normalized(url);
        commandHeader = commandToken == null
                ? new String[] {"X-Bellwether", "1"}
                : new String[] {"Authorization", "Bearer " + commandToken};
    }

    /** Returns the id, address, labels and token of the member that leads; null while none is known. */
    @SuppressWarnings("unchecked")
    public Map<String, Object> leader() throws IOException, InterruptedException {
        return (Map<String, Object>) get("/leader", Duration.ofSeconds(2)).get("leader");
    }

    /**
     * Follows until the process ends, on a daemon thread of its own. The callbacks run there, one at a time, and must return
     * soon: nothing is renewed meanwhile. What they throw is logged.
     */
    public void follow(LongConsumer onElected, Runnable onLost) {
        var thread = new Thread(() -> {
            try {
                followUntilInterrupted(onElected, onLost);
            } catch (InterruptedException e) {
                lease = null;
            }
        }, "bellwether");
        thread.setDaemon(true);
        thread.start();
    }

    public boolean isLeader() {
        return token() != 0;
    }

    public long token() {
        var current = lease;
        return current != null && current.left() > 0 ? current.token : 0;
    }

    /**
     * Waits for the lock, without a limit if {@code wait} is null, and beside a frozen sidecar for five seconds more: call it on a
     * thread of its own.
     *
     * @throws TimeoutException if it was not got in time
     * @throws AnswerException if the sidecar refuses it
     */
    public Lock lock(String name, Duration wait) throws IOException, InterruptedException, TimeoutException {
        return new Lock(name, wait);
    }

    private void followUntilInterrupted(LongConsumer onElected, Runnable onLost) throws InterruptedException {
        long led = 0;
        long index = 0;
        String reported = "";
        while (true) {
            // While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
            long left = lease == null ? 0 : lease.left();
            long wait = left > 0 ? Math.min(left / 2, lease.interval) : TimeUnit.SECONDS.toNanos(60);
            long timeout = left > 0 ? left : TimeUnit.SECONDS.toNanos(65);
            boolean failed = false;
            if (lease != null && left <= 0) {
                lease = null; // Ask again at once: the next lease need not be a change.
                index = 0;
            } else {
                try {
                    long ahead = wallAhead();
                    var answer = get("/leader?index=" + index + "&wait=" + wait / 1_000_000 + "ms", Duration.ofNanos(timeout));
                    boolean isSelf = answer.get("is_self") == Boolean.TRUE;
                    lease = isSelf ? new Lease((Map<?, ?>) answer.get("leader"), answer, ahead) : null;
                    if (!(answer.get("index") instanceof Long next)) {
                        throw new IOException("it has not joined: " + answer.get("detail"));
                    }
                    index = next;
                    reported = "";
                } catch (IOException | RuntimeException e) {
                    // Without an answer, the lease of the last one still counts.
                    // In the last second of a lease, the sidecar had too little time to answer.
                    if (timeout >= TimeUnit.SECONDS.toNanos(1) && !reported.equals(e.toString())) {
                        LOG.log(System.Logger.Level.WARNING, "the sidecar at " + url + " gives no good answer, asking again: " + e);
                        reported = e.toString();
                    }
                    index = 0;
                    failed = true;
                }
            }
            long token = token();
            if (token != led) {
                if (led != 0) {
                    call(onLost);
                }
                if (token != 0) {
                    call(() -> onElected.accept(token));
                }
                led = token;
            }
            if (failed) {
                long second = TimeUnit.SECONDS.toNanos(1);
                TimeUnit.NANOSECONDS.sleep(lease == null ? second : Math.min(second, lease.left()));
            }
        }
    }

    private static void call(Runnable callback) {
        try {
            callback.run();
        } catch (Throwable e) { // Kotlin and others throw checked exceptions too.
            LOG.log(System.Logger.Level.ERROR, "a callback failed", e);
        }
    }

    private Map<?, ?> get(String path, Duration timeout) throws IOException, InterruptedException {
        var response = answer(HttpRequest.newBuilder(URI.create(url + path)).build(), timeout);
        var body = object(response.body());
        boolean isKnown = response.statusCode() == 200 && body.containsKey("leader");
        boolean isUnknown = response.statusCode() == 503 && String.valueOf(body.get("type")).endsWith("no-leader");
        if (!isKnown && !isUnknown) {
            throw new AnswerException("GET " + url + path, response.statusCode(), body.get("detail"));
        }
        return body;
    }

    /** Returns the answer once its body has come too: before Java 26, the timeout of a request ends with the headers. */
    private HttpResponse<String> answer(HttpRequest request, Duration timeout) throws IOException, InterruptedException {
        var answer = http.sendAsync(request, BodyHandlers.ofString());
        try {
            return answer.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            throw new HttpTimeoutException("the sidecar does not answer");
        } catch (ExecutionException e) {
            throw e.getCause() instanceof IOException failure ? failure : new IOException(e.getCause());
        } finally {
            answer.cancel(true); // One that has come stays.
        }
    }

    /** Returns the object, without fields if the text is not the JSON of one. */
    private static Map<?, ?> object(String text) {
        try {
            return new Json(text).value() instanceof Map<?, ?> map ? map : Map.of();
        } catch (RuntimeException e) {
            return Map.of();
        }
    }

    private static String normalized(String url) {
        if (url.startsWith("unix:")) {
            throw new IllegalArgumentException("this client cannot use " + url + ": let the sidecar listen at a port");
        }
        var parts = ADDRESS.matcher(url.matches("[0-9]+") ? ":" + url : url);
        boolean isAddress = parts.matches();
        boolean isPort = isAddress && parts.group(1) == null && parts.group(3) != null;
        if (!isAddress || parts.group(2).isEmpty() && !isPort) {
            throw new IllegalArgumentException("\"" + url + "\" is not a sidecar's address: write http://HOST:PORT");
        }
        var host = parts.group(2).isEmpty() ? "127.0.0.1" : parts.group(2);
        var port = parts.group(3) != null ? parts.group(3) : parts.group(1) != null ? "80" : "4040";
        return "http://" + host + ":" + port;
    }

    /**
     * Returns how far the wall clock is ahead of {@code System.nanoTime()}. On Linux that is CLOCK_MONOTONIC (HotSpot, OpenJ9 and
     * GraalVM), on which the sidecar reports its deadlines too; it stands still while the machine is suspended, and the wall clock
     * does not. A wall clock that is set forward costs one more question, one that is set back costs nothing.
     */
    private static long wallAhead() {
        return TimeUnit.MILLISECONDS.toNanos(System.currentTimeMillis()) - System.nanoTime();
    }

    /** An answer of the sidecar that is none to what was asked. */
    public static final class AnswerException extends IOException {
        private static final long serialVersionUID = 1;

        public final int status;
        /** What is wrong, in the sidecar's words; null if it says nothing. */
        public final String detail;

        AnswerException(String request, int status, Object detail) {
            super(request + " is answered with " + status + ": " + (detail == null ? "is that a sidecar?" : detail));
            this.status = status;
            this.detail = detail instanceof String text ? text : null;
        }
    }

    /** A token, until when it counts, and how often to renew it. */
    private static final class Lease {
        final long token;
        final long interval;
        private final long until;
        private final long ahead;

        /** {@code ahead} is of before the answer can have been written. */
        Lease(Map<?, ?> holder, Map<?, ?> answer, long ahead) {
            token = (Long) holder.get("token");
            until = (Long) answer.get("valid_until_monotonic_ns");
            interval = TimeUnit.MILLISECONDS.toNanos((Long) answer.get("valid_for_ms")) / 4;
            this.ahead = ahead;
            if (until - System.nanoTime() > TimeUnit.MILLISECONDS.toNanos((Long) answer.get("valid_for_ms") + 1)) {
                throw new IllegalStateException("the sidecar has another clock than this JVM: it must run on this machine");
            }
        }

        long left() {
            long suspended = Math.max(0, wallAhead() - ahead);
            return until - System.nanoTime() - suspended;
        }
    }

    /** A lock that is held until it is closed, or until the lease ends. */
    public final class Lock implements AutoCloseable {
        private final CompletableFuture<HttpResponse<InputStream>> answer;
        private final CompletableFuture<Long> token = new CompletableFuture<>();
        private volatile Lease held;
        private volatile boolean isOver;

        private Lock(String name, Duration wait) throws IOException, InterruptedException, TimeoutException {
            if (!name.matches("[A-Za-z0-9._-]{1,64}") || name.equals(".") || name.equals("..")) {
                throw new IllegalArgumentException("\"" + name + "\" is not a lock's name: write 1 to 64 of A-Z a-z 0-9 . _ -");
            }
            var query = wait == null ? "" : "?wait=" + wait.toMillis() + "ms";
            // Without a timeout of its own: since Java 26, that would end the stream of a lock that is held.
            var request = HttpRequest.newBuilder(URI.create(url + "/locks/" + name + query))
                    .POST(HttpRequest.BodyPublishers.noBody()).headers(commandHeader).build();
            answer = http.sendAsync(request, BodyHandlers.ofInputStream());
            var thread = new Thread(() -> read(name), "bellwether-lock");
            thread.setDaemon(true);
            thread.start();
            try {
                token.get(wait == null ? Long.MAX_VALUE : wait.plusSeconds(5).toMillis(), TimeUnit.MILLISECONDS);
            } catch (ExecutionException e) {
                release();
                if (e.getCause() instanceof TimeoutException timeout) {
                    throw timeout;
                }
                throw e.getCause() instanceof IOException failure ? failure : new IOException(e.getCause());
            } catch (InterruptedException e) {
                release();
                throw e;
            } catch (TimeoutException e) {
                release();
                throw new TimeoutException("the sidecar does not answer");
            }
        }

        public boolean isHeld() {
            var current = held;
            return !isOver && current != null && current.left() > 0;
        }

        public long token() {
            return token.join();
        }

        @Override
        public void close() {
            release();
        }

        /** Gives the lock back, from any thread: it ends with the connection. */
        public void release() {
            isOver = true;
            answer.cancel(true);
            answer.thenAccept(response -> { // If the answer was first.
                try {
                    response.body().close();
                } catch (IOException e) {
                    LOG.log(System.Logger.Level.DEBUG, "the sidecar closed the connection first", e);
                }
            });
        }

        private void read(String name) {
            Throwable failure = new IOException("the sidecar has closed the connection");
            try {
                var response = answer.get();
                if (response.statusCode() != 200) {
                    var body = object(new String(response.body().readAllBytes(), StandardCharsets.UTF_8));
                    throw new AnswerException("POST /locks/" + name, response.statusCode(), body.get("detail"));
                }
                // Not closed, since that would wait for a reader: `release` closes the stream below it.
                var lines = new BufferedReader(new InputStreamReader(response.body(), StandardCharsets.UTF_8));
                String event = "";
                long ahead = wallAhead();
                for (String line; (line = lines.readLine()) != null; ahead = wallAhead()) {
                    if (line.startsWith("event: ")) {
                        event = line.substring(7);
                    } else if (line.startsWith("data: ") && !event.equals("waiting")) {
                        var data = (Map<?, ?>) new Json(line.substring(6)).value();
                        if (!event.equals("held") && !event.equals("renewed")) {
                            failure = failure(name, event, (String) data.get("why"));
                            break;
                        }
                        held = new Lease(data, data, ahead);
                        token.complete(held.token);
                    }
                }
            } catch (ExecutionException e) {
                failure = e.getCause();
            } catch (IOException | InterruptedException | RuntimeException e) {
                failure = e;
            }
            release(); // Without the connection it is not held.
            token.completeExceptionally(failure);
        }

        private static Exception failure(String name, String event, String why) {
            return switch (event) {
                case "timeout" -> new TimeoutException(why);
                case "refused" -> new AnswerException("POST /locks/" + name, 409, why);
                default -> new IOException(why);
            };
        }
    }

    /** Reads a sidecar's JSON, in which numbers are whole. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        Object value() {
            char first = next();
            if (first == '{') {
                at++;
                var map = new LinkedHashMap<String, Object>();
                while (next() != '}') {
                    skip(",");
                    var key = string();
                    next();
                    skip(":");
                    map.put(key, value());
                }
                at++;
                return map;
            }
            if (first == '[') {
                at++;
                var list = new ArrayList<>();
                while (next() != ']') {
                    skip(",");
                    list.add(value());
                }
                at++;
                return list;
            }
            if (first == '"') {
                return string();
            }
            int start = at;
            while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            var word = text.substring(start, at);
            return switch (word) {
                case "null" -> null;
                case "true", "false" -> Boolean.valueOf(word);
                default -> Long.valueOf(word);
            };
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at))) {
                at++;
            }
            return text.charAt(at);
        }

        private void skip(String separator) {
            if (text.startsWith(separator, at)) {
                at++;
            }
            next();
        }

        private String string() {
            if (next() != '"') {
                throw new IllegalArgumentException("not JSON: " + text);
            }
            var string = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c == '\\') {
                    c = text.charAt(++at);
                    if (c == 'u') {
                        c = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                        at += 4;
                    } else if ("bfnrt".indexOf(c) >= 0) {
                        c = "\b\f\n\r\t".charAt("bfnrt".indexOf(c));
                    }
                }
                string.append(c);
            }
            at++;
            return string.toString();
        }
    }

    private static void work(long token) throws InterruptedException {
        System.out.println("working with token " + token);
        Thread.sleep(250);
    }

    public static void main(String[] arguments) throws Exception {
        var sidecar = new Bellwether();
        if (arguments.length > 1 && arguments[0].equals("lock")) {
            var wait = arguments.length > 2 ? Duration.ofSeconds(Long.parseLong(arguments[2])) : null;
            try (var lock = sidecar.lock(arguments[1], wait)) {
                var thread = new Thread(() -> {
                    try {
                        System.in.readAllBytes();
                    } catch (IOException e) {
                        LOG.log(System.Logger.Level.DEBUG, "no standard input", e);
                    }
                    lock.release();
                });
                thread.setDaemon(true);
                thread.start();
                while (lock.isHeld()) {
                    work(lock.token());
                }
            }
            System.out.println("no longer held");
            return;
        }
        var elected = new Semaphore(0);
        sidecar.follow(token -> elected.release(), () -> System.err.println("no longer leading"));
        while (true) {
            elected.acquire();
            for (long token; (token = sidecar.token()) != 0;) {
                work(token);
            }
        }
    }
}
