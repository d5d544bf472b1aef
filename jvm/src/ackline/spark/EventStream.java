package ackline.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A stream: Spark asks for the end of the next batch, and then for its tasks. */
final class EventStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final Logger LOG = LoggerFactory.getLogger("ackline.spark");
    private static final long LOG_EVERY_NANOS = TimeUnit.SECONDS.toNanos(10);

    private final Query query;
    private final String[] wanted;
    private final Spent spent = new Spent(SparkSession.active().sparkContext());
    /** The reply to the last request for a batch: its end, its tasks, and what the spools held. */
    private JsonNode latest = Planner.JSON.createObjectNode();

    private Offset latestStart;
    /** The end of the batch that was planned last, until Spark commits it. */
    private Offset uncommitted;
    /** The end of the last batch of which Spark has reported progress, which it does when it has committed it. */
    private Offset done;
    /** The time at which the lag was logged last, in nanoseconds of the JVM. */
    private long loggedAt = System.nanoTime() - LOG_EVERY_NANOS;

    EventStream(Query query, String[] wanted) {
        this.query = query;
        this.wanted = wanted;
    }

    @Override
    public Offset initialOffset() {
        return JsonOffset.of(query.ask(query.request("initial")));
    }

    @Override
    public Offset deserializeOffset(String json) {
        return new JsonOffset(json);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        JsonNode limit = query.limit();
        if (limit.has("min_rows")) {
            // The planner ends the wait for more rows, so Spark needs no limit of time.
            return ReadLimit.minRows(limit.get("min_rows").asLong(), Long.MAX_VALUE);
        }
        if (limit.has("rows")) {
            return ReadLimit.maxRows(limit.get("rows").asLong());
        }
        if (limit.has("bytes")) {
            return ReadLimit.maxBytes(limit.get("bytes").asLong());
        }
        return ReadLimit.allAvailable();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        query.ask(query.request("pin"));
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        ObjectNode request = query.request("latest").put("all", limit instanceof ReadAllAvailable);
        request.set("start", Planner.parsed(start.json()));
        latest = query.ask(request);
        latestStart = start;
        return JsonOffset.of(latest.get("end"));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark calls latestOffset with a start and a limit");
    }

    @Override
    public Offset reportLatestOffset() {
        // Spark calls this right after latestOffset, whose reply holds the report.
        return latest.has("report") ? JsonOffset.of(latest.get("report")) : null;
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        done = latestConsumed.orElse(done);
        logLag();
        long rows = 0;
        double seconds = 0;
        for (JsonNode spool : latest.path("report").path("spools")) {
            rows += spool.path("rows_behind").asLong();
            seconds = Math.max(seconds, spool.path("seconds_behind").asDouble());
        }
        Map<String, String> metrics = new HashMap<>();
        metrics.put("rows_behind", Long.toString(rows));
        metrics.put("seconds_behind", Double.toString(seconds));
        spent.addTo(metrics);
        return metrics;
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        boolean isAhead = start.equals(uncommitted) && !start.equals(end);
        uncommitted = end;
        JsonNode tasks = latest.path("tasks");
        if (!isAhead && tasks.isArray() && start.equals(latestStart) && end.equals(JsonOffset.of(latest.get("end")))) {
            return Query.partitions(tasks);
        }
        ObjectNode request = query.request("partitions").put("is_ahead", isAhead);
        request.set("start", Planner.parsed(start.json()));
        request.set("end", Planner.parsed(end.json()));
        return Query.partitions(query.ask(request));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new TaskReaderFactory(query.reading(), wanted, spent);
    }

    @Override
    public void commit(Offset end) {
        // Nothing is sent: the marks have moved with the request for the next batch, which came before.
        if (end.equals(uncommitted)) {
            uncommitted = null;
        }
    }

    @Override
    public void stop() {
        query.close(done == null ? null : Planner.parsed(done.json()));
    }

    private void logLag() {
        long now = System.nanoTime();
        if (now - loggedAt < LOG_EVERY_NANOS) {
            return;
        }
        loggedAt = now;
        JsonNode report = latest.path("report");
        for (JsonNode spool : report.path("spools")) {
            LOG.info(
                    "query with {} is {} events and {} s behind the spool in {} code=spark.lag",
                    report.has("consumer") ? "consumer " + report.get("consumer").asText() : "no consumer",
                    spool.path("rows_behind").asLong(),
                    spool.path("seconds_behind").asDouble(),
                    spool.path("path").asText());
        }
    }
}
