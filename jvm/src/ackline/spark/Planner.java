package ackline.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * The Python process that plans the queries of this JVM: it opens spools, holds consumers and cuts batches into tasks.
 *
 * <p>Requests and replies are JSON, one on each line of its standard input and output. It ends when its input ends, so
 * it does not outlive a JVM that is killed.
 */
final class Planner {
    static final ObjectMapper JSON = new ObjectMapper();

    /** The setting of Spark, and the property of the JVM, that names the Python in which ackline is installed. */
    static final String PYTHON = "spark.ackline.python";

    private static final Logger LOG = LoggerFactory.getLogger("ackline.spark");
    private static final long PATIENCE_SECONDS = 30;

    private static Planner running;

    private final String command;
    private final Process process;
    private final BufferedWriter requests;
    private final Map<Long, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
    private final AtomicLong ids = new AtomicLong();

    private Planner(String python) {
        command = python + " -P -m ackline.spark.planner";
        try {
            // With -P nothing in the current directory is taken for a module.
            process = new ProcessBuilder(python, "-P", "-m", "ackline.spark.planner")
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
        } catch (IOException error) {
            throw new AcklineException("spark.planner", "ackline cannot start " + command + ": " + error.getMessage()
                    + "; set " + PYTHON + " to a Python in which ackline is installed");
        }
        requests = new BufferedWriter(new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8));
        Thread replies = new Thread(this::readReplies, "ackline planner");
        replies.setDaemon(true);
        replies.start();
    }

    /** Returns the planner of this JVM, started if there is none. */
    static synchronized Planner get() {
        if (running == null || !running.process.isAlive()) {
            running = new Planner(python());
        }
        return running;
    }

    /** Returns a text of JSON as its value. */
    static JsonNode parsed(String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException error) {
            throw new AcklineException(null, "no JSON: " + text);
        }
    }

    /** Returns a request without arguments. */
    static ObjectNode request(String call) {
        return JSON.createObjectNode().put("call", call);
    }

    /**
     * Waits for the reply to a request.
     *
     * @throws AcklineException the planner refuses it, or has ended
     */
    JsonNode ask(ObjectNode request) {
        long id = ids.incrementAndGet();
        CompletableFuture<JsonNode> reply = new CompletableFuture<>();
        waiting.put(id, reply);
        try {
            send(JSON.writeValueAsString(request.put("id", id)));
            JsonNode answer = answer(reply, request);
            if (answer.has("error")) {
                throw failed(answer.get("error"));
            }
            return answer.get("ok");
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            // Spark interrupts a query that is stopped, and looks for this very exception.
            throw Planner.<RuntimeException>unchecked(error);
        } catch (ExecutionException error) {
            throw (RuntimeException) error.getCause();
        } finally {
            waiting.remove(id);
        }
    }

    /** Sends a request whose reply nobody waits for. */
    void tell(ObjectNode request) {
        try {
            send(JSON.writeValueAsString(request.put("id", ids.incrementAndGet())));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits for a reply, and says so in the log when it takes long. */
    private JsonNode answer(CompletableFuture<JsonNode> reply, ObjectNode request)
            throws InterruptedException, ExecutionException {
        while (true) {
            try {
                return reply.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                LOG.warn(
                        "process {}, which plans ackline's queries, has not replied to {} for {} s code=spark.planner",
                        process.pid(),
                        request.path("call").asText(),
                        PATIENCE_SECONDS);
            }
        }
    }

    /** Throws the error that Spark throws for wrong options of its own sources. */
    static RuntimeException refused(String text) {
        throw Planner.<RuntimeException>unchecked(new AnalysisException(
                text,
                Option.empty(),
                Option.empty(),
                Option.empty(),
                Option.empty(),
                Map$.MODULE$.empty(),
                new QueryContext[0]));
    }

    /** Returns the error of a reply. */
    private static RuntimeException failed(JsonNode error) {
        String text = error.path("text").asText();
        return error.path("kind").asText().equals("UsageError")
                ? refused(text)
                : new AcklineException(error.path("code").asText(null), text);
    }

    private void send(String line) {
        try {
            synchronized (requests) {
                requests.write(line);
                requests.write('\n');
                requests.flush();
            }
        } catch (IOException error) {
            throw ended();
        }
        if (!process.isAlive()) {
            throw ended();
        }
    }

    private void readReplies() {
        try (BufferedReader replies =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            String line;
            while ((line = replies.readLine()) != null) {
                JsonNode reply = JSON.readTree(line);
                CompletableFuture<JsonNode> waiter = waiting.get(reply.path("id").asLong());
                if (waiter != null) {
                    waiter.complete(reply);
                }
            }
        } catch (IOException | RuntimeException | Error error) {
            LOG.error("a reply of the process that plans ackline's queries cannot be read code=spark.planner", error);
        } finally {
            process.destroyForcibly();
            String ended = ended().getMessage();
            waiting.values().forEach(
                    waiter -> waiter.completeExceptionally(new AcklineException("spark.planner", ended)));
        }
    }

    private AcklineException ended() {
        String status;
        try {
            status = "with status " + process.waitFor();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            status = "just now";
        }
        return new AcklineException("spark.planner", "spark.planner: the process that plans ackline's queries ended "
                + status + " (" + command + "); its last lines on standard error say why. If it found no ackline, set "
                + PYTHON + " to a Python in which ackline is installed; else start the query again");
    }

    /** Returns the Python for the planner: one for the whole JVM, which no query of SQL can set. */
    private static String python() {
        SparkConf conf = SparkSession.active().sparkContext().getConf();
        for (String python : new String[] {System.getProperty(PYTHON), conf.get(PYTHON, null)}) {
            if (python != null) {
                return python;
            }
        }
        String[] ofSpark = {
            conf.get("spark.pyspark.driver.python", null),
            conf.get("spark.pyspark.python", null),
            System.getenv("PYSPARK_DRIVER_PYTHON"),
            System.getenv("PYSPARK_PYTHON"),
        };
        for (String python : ofSpark) {
            // ipython and jupyter may be set here, and cannot run a module with -m.
            if (python != null && python.matches("(.*/)?(python|pypy)[0-9.]*")) {
                return python;
            }
        }
        return "python3";
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException unchecked(Throwable error) throws E {
        throw (E) error;
    }
}
