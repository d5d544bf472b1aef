package ackline.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** A stream: Spark asks for the end of the next batch, and then for its tasks. */
final class EventStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private final Query query;
    private final String[] wanted;
    private final Spent spent = new Spent(SparkSession.active().sparkContext());
    private JsonNode report = Planner.JSON.createObjectNode();

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
        return JsonOffset.of(query.ask(request));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark calls latestOffset with a start and a limit");
    }

    @Override
    public Offset reportLatestOffset() {
        report = query.ask(query.request("report"));
        return JsonOffset.of(report);
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        long rows = 0;
        double seconds = 0;
        for (JsonNode spool : report.path("spools")) {
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
        ObjectNode request = query.request("partitions");
        request.set("start", Planner.parsed(start.json()));
        request.set("end", Planner.parsed(end.json()));
        return query.partitions(request);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new TaskReaderFactory(query.reading(), wanted, spent);
    }

    @Override
    public void commit(Offset end) {
        ObjectNode request = query.request("commit");
        request.set("end", Planner.parsed(end.json()));
        query.ask(request);
    }

    @Override
    public void stop() {
        query.close();
    }
}
