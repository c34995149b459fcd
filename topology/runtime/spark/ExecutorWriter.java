package dskype.spark;

import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Passes the records of one Kafka partition from Spark to the executor that has the partition's task.
 *
 * Why Java: every operator of PySpark keeps records until its batch has ended, and in Spark's real-time mode a batch lasts for minutes. A ForeachWriter, Spark's
 * public interface for custom sinks, gets each record at once. Janino, the compiler that Spark itself uses, builds this class when the product is set up. Janino
 * knows neither lambdas nor generics.
 *
 * A writer belongs to one Spark task, and so to one partition. With its first row it asks the supervisor of this host for the executor, and connects to it. A
 * thread of its own waits for what the executor says: the text of an error, which fails the task, or its end. If it was killed, the supervisor forks another, which
 * reads what its predecessor did not finish, up to the offset that the writer names.
 *
 * The other end of the connection is topology/runtime/transport/spark_input.py.
 */
public class ExecutorWriter extends ForeachWriter implements Runnable {
    private static final int KEY = 0, VALUE = 1, TOPIC = 2, PARTITION = 3, OFFSET = 4, TIMESTAMP = 5, HEADERS = 7;  // of the columns; headers are there for a Kafka spout
    private static final byte ARRAY_OF_5 = (byte) 0x95, NIL = (byte) 0xc0, BYTES = (byte) 0xc6, LONG = (byte) 0xd3, TEXT = (byte) 0xdb, MAP = (byte) 0xdf;  // of msgpack
    private static final int BUFFER_BYTES = 1 << 16;
    private static final int DEATHS = 5;
    private static final long DEATHS_MS = 30000L;  // on a busy machine a successor takes seconds to come
    private static final long CONNECT_MS = 30000L;
    private static final int FAILURES = 1000;
    private static final Map failures = new HashMap();  // task of a query -> why its first attempt failed, for the next one, which has the same place; guarded by LOCK
    private static final Object LOCK = new Object();
    private static String supervisor = null;  // path of the socket of this host's supervisor; guarded by LOCK
    private static File told = null;  // where the daemon writes it

    private final String python;
    private final Map environment;  // of Spark's Python workers, among others that no module is imported from the working folder
    private final Map routes;  // "topic/partition" -> executor
    private final List places;  // on a cluster, the Spark executor of each executor
    private final byte[] request;  // to the supervisor, up to the executor's number
    private final byte[] requestWithPayload;
    private final String inbox;

    private transient String name;
    private transient Thread task;
    private transient volatile SocketChannel channel;  // null: there is none now
    private transient ByteBuffer buffer;
    private transient Object changed;
    private transient String topic;
    private transient int partition;
    private transient int executor;
    private transient volatile long next;  // offset of the row that is passed on next
    private transient boolean ended;  // the executor has everything
    private transient volatile boolean closed;
    private transient volatile String failure;
    private transient ArrayDeque deaths;  // when executors died, the last ones
    private transient String silent;  // path of the supervisor that was asked last, if it has not answered

    public ExecutorWriter(String python, Map environment, String inbox, Map routes, List places, byte[] request, byte[] requestWithPayload) {
        this.python = python;
        this.environment = environment;
        this.inbox = inbox;
        this.routes = routes;
        this.places = places;
        this.request = request;
        this.requestWithPayload = requestWithPayload;
    }

    /**
     * Spark runs a task that failed again from the offset at which its batch began. That was minutes ago, the records may be gone, and Spark would wait for them without a word. So the attempts
     * after the first one fail, with the words of the first one: then the query ends, and the driver starts another one at the snapshots' offsets.
     */
    public boolean open(long partitionId, long epochId) {
        this.name = new String(this.request, StandardCharsets.ISO_8859_1) + partitionId;
        if (TaskContext.get().attemptNumber() > 0) {
            synchronized (LOCK) {
                String cause = (String) failures.get(this.name);
                throw new IllegalStateException(cause == null ? "the first attempt of this task has failed; the query has to begin anew" : cause);
            }
        }
        this.task = Thread.currentThread();
        this.buffer = ByteBuffer.allocateDirect(BUFFER_BYTES);
        this.changed = new Object();
        this.deaths = new ArrayDeque();
        return true;
    }

    /** The columns are those of Spark's Kafka source: a projection in between would copy each value twice. */
    public void process(Object given) {
        Row row = (Row) given;
        long offset = row.getLong(OFFSET);
        if (this.topic == null) {
            this.partition = row.getInt(PARTITION);
            this.topic = row.getString(TOPIC);
            this.executor = ((Integer) this.routes.get(this.topic + "/" + this.partition)).intValue();
            this.checkPlace();
            this.next = offset;
            Thread watcher = new Thread(this, "executor of " + this.topic + "/" + this.partition);
            watcher.setDaemon(true);
            watcher.start();
        }
        SocketChannel to = null;
        while (true) {
            to = this.working(to);
            try {
                this.write(to, row, offset);
                synchronized (this.changed) {
                    if (this.channel == to) {
                        this.next = offset + 1;
                        return;
                    }
                }
            } catch (IOException e) {
                if (Thread.currentThread().isInterrupted() && this.failure == null) throw new RuntimeException(e);
                this.shut(to);
            }
        }
    }

    /** Spark runs a task elsewhere if its place has no free slot, or is lost. The query then has to begin anew, with other places. */
    private void checkPlace() {
        String here = SparkEnv.get().executorId();
        if (this.places != null && !this.places.get(this.executor).equals(here)) throw new IllegalStateException("partition " + this.topic + "/" + this.partition + " belongs to Spark's executor " + this.places.get(this.executor) + ", and its task runs on " + here);
    }

    /** A record is an array of msgpack: offset, time in epoch milliseconds, key, value, and headers as a map. */
    private void write(SocketChannel to, Row row, long offset) throws IOException {
        List headers = row.size() > HEADERS && !row.isNullAt(HEADERS) ? row.getList(HEADERS) : null;
        this.buffer.clear();
        this.buffer.put(ARRAY_OF_5).put(LONG).putLong(offset).put(LONG).putLong(milliseconds(row.get(TIMESTAMP)));
        this.put(to, BYTES, (byte[]) row.get(KEY));
        this.put(to, BYTES, (byte[]) row.get(VALUE));
        this.putHead(to, MAP, headers == null ? -1 : headers.size());
        for (int i = 0; headers != null && i < headers.size(); i++) {
            Row header = (Row) headers.get(i);
            this.put(to, TEXT, header.getString(0).getBytes(StandardCharsets.UTF_8));
            this.put(to, BYTES, (byte[]) header.get(1));
        }
        send(to, this.buffer);
    }

    /** Spark's setting spark.sql.datetime.java8API.enabled decides which class a time has. */
    private static long milliseconds(Object time) {
        return time instanceof java.time.Instant ? ((java.time.Instant) time).toEpochMilli() : ((java.util.Date) time).getTime();
    }

    private void putHead(SocketChannel to, byte type, int length) throws IOException {
        if (this.buffer.remaining() < 5) send(to, this.buffer);
        if (length < 0) this.buffer.put(NIL);
        else this.buffer.put(type).putInt(length);
    }

    private void put(SocketChannel to, byte type, byte[] bytes) throws IOException {
        this.putHead(to, type, bytes == null ? -1 : bytes.length);
        int length;
        for (int at = 0; bytes != null && at < bytes.length; at += length) {
            if (!this.buffer.hasRemaining()) send(to, this.buffer);
            length = Math.min(bytes.length - at, this.buffer.remaining());
            this.buffer.put(bytes, at, length);
        }
    }

    /** Write what is in a buffer, and empty it. */
    private static void send(SocketChannel to, ByteBuffer out) throws IOException {
        out.flip();
        while (out.hasRemaining()) to.write(out);
        out.clear();
    }

    /** At the end of a batch the executor must have processed everything; only then may Spark commit the batch's offsets. */
    public void close(Throwable error) {
        try {
            SocketChannel to = error == null && this.topic != null ? this.working(null) : null;
            while (to != null) {
                try {
                    this.buffer.clear();
                    this.buffer.put(NIL);
                    send(to, this.buffer);
                } catch (IOException e) {
                    this.shut(to);
                }
                to = this.working(to);
            }
        } finally {
            synchronized (this.changed) {
                this.closed = true;
            }
            this.shut(this.channel);
        }
        if (this.failure != null) throw new IllegalStateException(this.failure);
    }

    /** Return the connection, or wait for the next one if it is the one that was used before; null: the executor has everything. */
    private SocketChannel working(SocketChannel used) {
        synchronized (this.changed) {
            try {
                while (!this.ended && this.failure == null && (this.channel == null || this.channel == used)) this.changed.wait();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new RuntimeException(e);  // Spark must not take the batch for processed
            }
            if (this.failure != null) throw new IllegalStateException(this.failure);
            return this.ended ? null : this.channel;
        }
    }

    /** The watcher sees it, and connects again. */
    private void shut(SocketChannel to) {
        try {
            if (to != null) to.close();
        } catch (IOException e) {
            // it is closed
        }
    }

    private void connect() throws IOException {
        byte[] answer = this.ask(this.request);
        if (answer[0] == 'N') answer = this.ask(this.requestWithPayload);
        String text = new String(answer, 1, answer.length - 1, StandardCharsets.UTF_8);
        if (answer[0] != 'P') throw new IllegalStateException(text);
        SocketChannel to = dial(text);
        byte[] name = this.topic.getBytes(StandardCharsets.UTF_8);
        ByteBuffer hello = ByteBuffer.allocate(8 + 8 + 4 + name.length).order(ByteOrder.LITTLE_ENDIAN);
        hello.putLong(12 + name.length).putLong(this.next).putInt(this.partition).put(name);
        send(to, hello);
        synchronized (this.changed) {
            if (this.closed) this.shut(to);
            this.channel = to;
            this.changed.notifyAll();
        }
    }

    private static SocketChannel dial(String path) throws IOException {
        return SocketChannel.open((SocketAddress) UnixDomainSocketAddress.of(path));
    }

    private byte[] ask(byte[] head) throws IOException {
        String path = supervisorPath(this.python, this.environment, this.silent);
        this.silent = path;
        SocketChannel to = dial(path);
        try {
            ByteBuffer out = ByteBuffer.allocate(8 + head.length + 5).order(ByteOrder.LITTLE_ENDIAN);
            out.putLong(head.length + 5).put(head).put((byte) 0xce);
            out.order(ByteOrder.BIG_ENDIAN).putInt(this.executor);
            send(to, out);
            byte[] answer = read(to);
            this.silent = null;
            return answer;
        } finally {
            this.shut(to);
        }
    }

    private static byte[] read(SocketChannel from) throws IOException {
        DataInputStream in = new DataInputStream(Channels.newInputStream(from));
        byte[] body = new byte[(int) Long.reverseBytes(in.readLong())];
        in.readFully(body);
        return body;
    }

    /**
     * Return the path of the supervisor of this host. Spark's Python daemon starts one, and says where in a file; if a supervisor has ended, its daemon is ended, too.
     * The driver calls it when Spark has started, so that the first executors need not wait for it.
     */
    public static String supervisorPath(String python, Map environment, String failed) throws IOException {
        String daemon = SparkEnv.get().conf().get("spark.python.daemon.module");
        synchronized (LOCK) {
            if (told == null) {
                told = File.createTempFile("dskype-", ".supervisor");
                told.deleteOnExit();
            }
            Map all = new HashMap(environment);
            all.put("DSKYPE_SUPERVISOR_FILE", told.getPath());
            scala.collection.immutable.Map variables = (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.from(scala.jdk.javaapi.CollectionConverters.asScala(all));
            while (supervisor == null || supervisor.equals(failed)) {
                scala.Tuple2 started = SparkEnv.get().createPythonWorker(python, "pyspark.worker", daemon, variables, true);
                String path = new String(Files.readAllBytes(told.toPath()), StandardCharsets.UTF_8);
                ProcessHandle daemonProcess = null;
                if (path.equals(failed)) {
                    ProcessHandle worker = (ProcessHandle) ((scala.Option) started._2()).get();
                    daemonProcess = (ProcessHandle) worker.parent().orElse(null);
                } else {
                    supervisor = path;
                }
                // Through the daemon: it must be there for that.
                SparkEnv.get().destroyPythonWorker(python, "pyspark.worker", daemon, variables, (org.apache.spark.api.python.PythonWorker) started._1());
                if (daemonProcess != null) daemonProcess.destroyForcibly();
            }
            return supervisor;
        }
    }

    /** Waits for what the executor says, and connects to the next one if it has ended. */
    public void run() {
        try {
            while (true) {
                this.count();
                this.connectInTime();
                byte[] said = null;
                try {
                    said = read(this.channel);
                } catch (IOException e) {
                    // it has ended
                }
                if (this.closed) return;
                if (said != null && said[0] != 2) throw new IllegalStateException(new String(said, 1, said.length - 1, StandardCharsets.UTF_8));
                SocketChannel from = this.channel;
                synchronized (this.changed) {
                    this.ended = said != null;
                    if (!this.ended) this.channel = null;
                    this.changed.notifyAll();
                }
                if (this.ended) return;
                this.shut(from);
            }
        } catch (Throwable e) {  // whatever it is: without this thread, the task would wait for ever
            this.fail(e.getMessage() == null ? e.toString() : e.getMessage());
        }
    }

    private void connectInTime() throws Exception {
        long until = System.nanoTime() / 1000000L + CONNECT_MS;
        while (true) {
            try {
                this.connect();
                return;
            } catch (IllegalStateException e) {
                throw e;
            } catch (Exception e) {  // it, the supervisor or the daemon has ended again; Spark's own exceptions are of many kinds
                if (System.nanoTime() / 1000000L > until) throw e;
                Thread.sleep(20L);
            }
        }
    }

    private void count() {
        long now = System.nanoTime() / 1000000L;
        this.deaths.add(Long.valueOf(now));
        if (this.deaths.size() > DEATHS && now - ((Long) this.deaths.remove()).longValue() < DEATHS_MS) throw new IllegalStateException("executor " + this.executor + " of " + this.inbox + " died " + (DEATHS + 1) + " times within " + DEATHS_MS / 1000 + " s");
    }

    private void fail(String text) {
        synchronized (LOCK) {
            if (failures.size() >= FAILURES) failures.clear();  // of queries that have ended long ago
            failures.put(this.name, text);
        }
        synchronized (this.changed) {
            this.failure = text;
            this.changed.notifyAll();
        }
        this.task.interrupt();  // it may be waiting for a record
    }
}
