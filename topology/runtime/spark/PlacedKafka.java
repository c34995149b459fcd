package dskype.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, on a cluster: it names for each partition the Spark executor on which the partition's task is to run.
 *
 * Why Java: Spark's own source names no place in real-time mode, and in micro-batches a place of its own choice, so a task may run on another host in every batch, away from the executor that has its state. Spark asks
 * sources of Java alone for real-time mode. Everything but the places is done by Spark's source. The option "dskype.places" has a line for each partition: topic, partition and
 * place, with tabs in between; a place is what Spark calls a task location, "executor_HOST_ID".
 */
public class PlacedKafka implements TableProvider {
    private final KafkaSourceProvider kafka = new KafkaSourceProvider();

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return this.kafka.inferSchema(options);
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new PlacedTable((SupportsRead) this.kafka.getTable(schema, partitioning, properties));
    }

    static class PlacedTable implements SupportsRead {
        private final SupportsRead kafka;

        PlacedTable(SupportsRead kafka) {
            this.kafka = kafka;
        }

        public String name() {
            return this.kafka.name();
        }

        public StructType schema() {
            return this.kafka.schema();
        }

        public Set capabilities() {
            return this.kafka.capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return new PlacedScan(this.kafka.newScanBuilder(options).build(), options.get("dskype.places"));
        }
    }

    static class PlacedScan implements ScanBuilder, Scan {
        private final Scan kafka;
        private final String places;

        PlacedScan(Scan kafka, String places) {
            this.kafka = kafka;
            this.places = places;
        }

        public Scan build() {
            return this;
        }

        public StructType readSchema() {
            return this.kafka.readSchema();
        }

        public String description() {
            return this.kafka.description();
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new PlacedStream((KafkaMicroBatchStream) this.kafka.toMicroBatchStream(checkpoint), this.places);
        }
    }

    static class PlacedStream implements MicroBatchStream, SupportsRealTimeMode, SupportsAdmissionControl, ReportsSourceMetrics {
        private final KafkaMicroBatchStream kafka;
        private final Map places = new HashMap();  // "topic/partition" -> place

        PlacedStream(KafkaMicroBatchStream kafka, String places) {
            this.kafka = kafka;
            String[] lines = places.split("\n");
            for (int i = 0; i < lines.length; i++) {
                String[] columns = lines[i].split("\t");
                this.places.put(columns[0] + "/" + columns[1], columns[2]);
            }
        }

        public InputPartition[] planInputPartitions(Offset start) {
            return this.placed(this.kafka.planInputPartitions(start));
        }

        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            return this.placed(this.kafka.planInputPartitions(start, end));
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

        public PartitionReaderFactory createReaderFactory() {
            return this.kafka.createReaderFactory();
        }

        public Offset mergeOffsets(PartitionOffset[] offsets) {
            return this.kafka.mergeOffsets(offsets);
        }

        public void prepareForRealTimeMode() {
            this.kafka.prepareForRealTimeMode();
        }

        public Offset initialOffset() {
            return this.kafka.initialOffset();
        }

        public Offset latestOffset() {
            return this.kafka.latestOffset();
        }

        public Offset latestOffset(Offset start, ReadLimit limit) {
            return this.kafka.latestOffset(start, limit);
        }

        public ReadLimit getDefaultReadLimit() {
            return this.kafka.getDefaultReadLimit();
        }

        public Offset reportLatestOffset() {
            return this.kafka.reportLatestOffset();
        }

        public Map metrics(Optional latestConsumed) {
            return this.kafka.metrics(latestConsumed);
        }

        public Offset deserializeOffset(String json) {
            return this.kafka.deserializeOffset(json);
        }

        public void commit(Offset end) {
            this.kafka.commit(end);
        }

        public void stop() {
            this.kafka.stop();
        }

        public String toString() {
            return this.kafka.toString();
        }
    }
}
