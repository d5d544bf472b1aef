import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * One peer of the interop tests: Camel's Lumberjack server, on the port that is its one argument. It prints `listening`,
 * then each event as Camel parsed it, as one line of JSON, and acknowledges a window after its last event went through.
 */
public class Receive {
    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        try (var context = new DefaultCamelContext()) {
            context.addRoutes(new RouteBuilder() {
                @Override
                public void configure() {
                    from("lumberjack:127.0.0.1:" + arguments[0])
                        .process(exchange -> System.out.println(json.writeValueAsString(exchange.getMessage().getBody())));
                }
            });
            context.start();
            System.out.println("listening " + arguments[0]);
            Thread.currentThread().join();
        }
    }
}
