import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.stream.Stream;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

// Starts one Elasticsearch node from its published artifacts: HOME, then settings as KEY=VALUE.
// It lives as long as its standard input: when the test that started it is gone, however it went,
// the node ends and HOME is removed. Killed with SIGKILL it leaves HOME, so it can be started again.
public class Launcher {
    public static void main(String[] args) throws Exception {
        Settings.Builder settings = Settings.builder().put("path.home", args[0]);
        for (int i = 1; i < args.length; i++) {
            String[] kv = args[i].split("=", 2);
            settings.put(kv[0], kv[1]);
        }
        LogConfigurator.registerErrorListener();
        LogConfigurator.configureESLogging();
        Settings built = settings.build();
        LogConfigurator.configureWithoutConfig(built);
        Environment env = new Environment(built, Path.of(args[0], "config"));
        PluginsLoader loader = PluginsLoader.createPluginsLoader(
            PluginsLoader.loadModulesBundles(env.modulesDir()), PluginsLoader.loadPluginsBundles(env.pluginsDir()), Map.of());
        // Nobody will look at this data again, so a clean close of the node would be time lost.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(Path.of(args[0]))));
        new Node(env, loader).start();
        while (System.in.read() >= 0) { /* until the test is gone */ }
        System.exit(0);
    }

    static void remove(Path dir) {
        // Twice: the node still runs and may add a file while the first pass goes on.
        for (int i = 0; i < 2; i++) {
            try (Stream<Path> files = Files.walk(dir)) {
                files.sorted(Comparator.reverseOrder()).forEach(f -> { try { Files.deleteIfExists(f); } catch (IOException e) { /* second pass */ } });
            } catch (Exception e) { /* gone */ }
        }
    }
}
