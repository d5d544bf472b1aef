package ackline.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of a query or table.
 *
 * @param options the options by their names
 */
record Given(Map<String, String> options) {
    private static final Pattern CLUSTER = Pattern.compile("local-cluster\\[\\s*(\\d+)\\s*,\\s*(\\d+)\\s*,.*");

    Given(CaseInsensitiveStringMap options) {
        this(Map.copyOf(checked(options.asCaseSensitiveMap())));
    }

    private static Map<String, String> checked(Map<String, String> options) {
        options.forEach((name, value) -> {
            if (value == null) {
                throw Planner.refused("the option " + name + " has no value: leave it out");
            }
        });
        return options;
    }

    /** Adds them to a request. */
    ObjectNode addTo(ObjectNode request) {
        SparkSession session = SparkSession.active();
        ObjectNode all = request.putObject("options");
        options.forEach(all::put);
        return request.put("spark", session.version()).put("cores", cores(session));
    }

    /** Returns how many tasks the session runs at once: the executors of a cluster may not be there yet. */
    private static int cores(SparkSession session) {
        Matcher cluster = CLUSTER.matcher(session.conf().get("spark.master", ""));
        int cores = cluster.matches()
                ? Integer.parseInt(cluster.group(1)) * Integer.parseInt(cluster.group(2))
                : session.sparkContext().defaultParallelism();
        double ofTask = Double.parseDouble(session.sparkContext().getConf().get("spark.task.cpus", "1"));
        return (int) Math.max(1, cores / Math.max(1, ofTask));
    }
}
