import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.camel.support.jsse.KeyManagersParameters;
import org.apache.camel.support.jsse.KeyStoreParameters;
import org.apache.camel.support.jsse.SSLContextParameters;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * One peer of the interop tests: Camel's Lumberjack server, on the port that is its first argument; with TLS if a
 * PKCS #12 file and its password come after it. It prints `listening`, then each event as Camel parsed it, as one line
 * of JSON, and acknowledges a window after its last event went through.
 */
public class Receive {
    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        try (var context = new DefaultCamelContext()) {
            var options = "";
            if (arguments.length > 1) {
                context.getRegistry().bind("tls", tls(arguments[1], arguments[2]));
                options = "?sslContextParameters=#tls";
            }
            var uri = "lumberjack:127.0.0.1:" + arguments[0] + options;
            context.addRoutes(new RouteBuilder() {
                @Override
                public void configure() {
                    from(uri)
                        .process(exchange -> System.out.println(json.writeValueAsString(exchange.getMessage().getBody())));
                }
            });
            context.start();
            System.out.println("listening " + arguments[0]);
            Thread.currentThread().join();
        }
    }

    private static SSLContextParameters tls(String file, String password) {
        var store = new KeyStoreParameters();
        store.setType("PKCS12");
        store.setResource("file:" + file);
        store.setPassword(password);
        var keys = new KeyManagersParameters();
        keys.setKeyStore(store);
        keys.setKeyPassword(password);
        var tls = new SSLContextParameters();
        tls.setKeyManagers(keys);
        return tls;
    }
}
