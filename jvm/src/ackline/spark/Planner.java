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
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * The Python process that plans the queries of this JVM: it opens spools, holds consumers and cuts batches into tasks.
 *
 * <p>Requests and replies are JSON, one on each line of its standard input and output. It ends with its input, so
 * also if this JVM is killed.
 */
final class Planner {
    static final ObjectMapper JSON = new ObjectMapper();

    /** The setting of a session that names the Python in which ackline is installed. */
    static final String PYTHON = "spark.ackline.python";

    private static Planner running;

    private final String command;
    private final Process process;
    private final BufferedWriter requests;
    private final Map<Long, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();
    private final AtomicLong ids = new AtomicLong();

    private Planner(String python) {
        command = python + " -m ackline.spark.planner";
        try {
            process = new ProcessBuilder(python, "-m", "ackline.spark.planner")
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
            JsonNode answer = reply.get();
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
        } catch (IOException error) {
            process.destroy();
        }
        AcklineException ended = ended();
        waiting.values().forEach(waiter -> waiter.completeExceptionally(ended));
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

    private static String python() {
        String[] given = {
            setting(PYTHON),
            setting("spark.pyspark.driver.python"),
            setting("spark.pyspark.python"),
            System.getenv("PYSPARK_DRIVER_PYTHON"),
            System.getenv("PYSPARK_PYTHON"),
        };
        for (String python : given) {
            if (python != null && !python.isEmpty()) {
                return python;
            }
        }
        return "python3";
    }

    private static String setting(String name) {
        SparkSession session = SparkSession.active();
        return session.conf().getOption(name).getOrElse(() -> null);
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException unchecked(Throwable error) throws E {
        throw (E) error;
    }
}
