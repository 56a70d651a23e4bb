import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * A REST catalog of Iceberg tables: Iceberg's own servlet over its own JdbcCatalog.
 *
 * <p>Arguments: port, JDBC address, its user, warehouse.
 */
public class RestCatalogServer {
    public static void main(String[] arguments) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.initialize(
                "rest",
                Map.of(
                        "uri", arguments[1],
                        "jdbc.user", arguments[2],
                        "warehouse", arguments[3],
                        "jdbc.schema-version", "V1",
                        "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
        RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        ServletContextHandler handler = new ServletContextHandler();
        handler.addServlet(new ServletHolder(servlet), "/*");
        int port = Integer.parseInt(arguments[0]);
        Server server = new Server(new InetSocketAddress("127.0.0.1", port));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
