import java.time.Duration;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * A peer: Kafka Streams counts records by key in windows of a minute. Started by benchmarks.streams_peer.
 *
 * <p>Arguments: bootstrap servers, topic, application id, directory of the state, threads, and records. It prints a line for
 * each event: "reading" before the first record, "restoring", "restored" with the number of restored records, and when all
 * records are processed "emitted" with the records of emitted windows, and "done". Each line begins with the time in
 * milliseconds.
 */
public final class WindowCounts {
    public static void main(String[] args) throws Exception {
        long wanted = Long.parseLong(args[5]);
        AtomicLong read = new AtomicLong();
        AtomicLong done = new AtomicLong();
        AtomicLong emitted = new AtomicLong();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<Bytes, byte[]> records = builder.stream(args[1], Consumed.with(Serdes.Bytes(), Serdes.ByteArray()));
        // Before the aggregation, because children of a node process a record in their order.
        records.foreach((key, value) -> {
            if (read.getAndIncrement() == 0) {
                print("reading", 0);
            }
        });
        records.groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(10)))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count()
                .toStream()
                .foreach((key, count) -> emitted.addAndGet(count));
        records.foreach((key, value) -> {
            if (done.incrementAndGet() == wanted) {
                print("emitted", emitted.get());
                print("done", wanted);
            }
        });
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(args));
        streams.setGlobalStateRestoreListener(new Restores());
        streams.start();
        // Standard input ends with the benchmark.
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0);
    }

    private static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[2]);
        settings.put("state.dir", args[3]);
        settings.put("num.stream.threads", args[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.BytesSerde.class.getName());
        settings.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        // About as often as a micro-batch of this library commits.
        settings.put("commit.interval.ms", "1000");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        return settings;
    }

    private static synchronized void print(String event, long records) {
        System.out.println(String.format(Locale.ROOT, "%d %s %d", System.currentTimeMillis(), event, records));
        System.out.flush();
    }

    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long first, long end) {
            print("restoring", 0);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            print("restored", restored);
        }
    }
}
