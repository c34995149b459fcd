package dskype.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, on a cluster: it names for each partition the Spark executor on which the partition's task is to run.
 *
 * Why Java: Spark's own source names no place in real-time mode, and in micro-batches a place of its own choice, so a task may run on another host in every batch, away from the executor that has its state. Spark asks
 * sources of Java alone for real-time mode. Everything but the places is done by Spark's source. The option "dskype.places" has a line for each partition:
 * "topic/partition place"; a place is what Spark calls a task location, "executor_HOST_ID".
 */
public class PlacedKafka implements TableProvider {
    private static final Class[] STREAM = {MicroBatchStream.class, SupportsRealTimeMode.class, SupportsAdmissionControl.class, ReportsSourceMetrics.class};

    private final KafkaSourceProvider kafka = new KafkaSourceProvider();

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return this.kafka.inferSchema(options);
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return (Table) Placing.of(new Class[] {SupportsRead.class}, this.kafka.getTable(schema, partitioning, properties), places((String) properties.get("dskype.places")));
    }

    /** Return "topic/partition" -> place. */
    private static Map places(String option) {
        Map places = new HashMap();
        String[] lines = option.split("\n");
        for (int i = 0; i < lines.length; i++) {
            String[] columns = lines[i].split(" ");
            places.put(columns[0], columns[1]);
        }
        return places;
    }

    /** Passes all calls on to an object of Spark's source, and stands in for what that object makes as well: from the table over the scan to the stream, which plans the partitions. */
    static class Placing implements InvocationHandler {
        private final Object kafka;
        private final Map places;

        static Object of(Class[] interfaces, Object kafka, Map places) {
            return Proxy.newProxyInstance(PlacedKafka.class.getClassLoader(), interfaces, new Placing(kafka, places));
        }

        Placing(Object kafka, Map places) {
            this.kafka = kafka;
            this.places = places;
        }

        public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
            String name = method.getName();
            if (name.equals("equals")) return Boolean.valueOf(proxy == given[0]);
            Object found;
            try {
                found = method.invoke(this.kafka, given);
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
            if (name.equals("newScanBuilder")) return of(new Class[] {ScanBuilder.class}, found, this.places);
            if (name.equals("build")) return of(new Class[] {Scan.class}, found, this.places);
            if (name.equals("toMicroBatchStream")) return of(STREAM, found, this.places);
            if (name.equals("planInputPartitions")) return this.placed((InputPartition[]) found);
            return found;
        }

        private InputPartition[] placed(InputPartition[] found) {
            for (int i = 0; i < found.length; i++) {
                KafkaBatchInputPartition given = (KafkaBatchInputPartition) found[i];
                KafkaOffsetRange range = given.offsetRange();
                scala.Option place = scala.Option.apply(this.places.get(range.topic() + "/" + range.partition()));
                found[i] = new KafkaBatchInputPartition(
                    new KafkaOffsetRange(range.topicPartition(), range.fromOffset(), range.untilOffset(), place),
                    given.executorKafkaParams(), given.pollTimeoutMs(), given.failOnDataLoss(), given.includeHeaders()
                );
            }
            return found;
        }
    }
}
