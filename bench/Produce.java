/*
 * Produce.java: Kafka's own Java producer alone, which relays on Kafka Connect have: the same events as produce.cpp, with
 * several requests in flight. It reads the events from stdin, as events.cpp writes them.
 *
 *   java Produce.java BROKERS TOPIC LINGER_MS WARM_TOPIC drain           all at once
 *   java Produce.java BROKERS TOPIC LINGER_MS WARM_TOPIC pace RATE OUT   evenly; OUT gets a line of times for each
 *
 * Before, WARM_TOPIC gets so many of them that the JIT compiler is warm. Prints one line of JSON. Exit code 1 when
 * anything was not acknowledged.
 */
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

class Produce {
  static final int WARM = 1_000_000;

  record Event(byte[] key, byte[] id, byte[] payload) {}

  static final List<Event> events = new ArrayList<>();
  static final AtomicLong acknowledged = new AtomicLong();
  static KafkaProducer<byte[], byte[]> producer;

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static void read() throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null;) {
      String[] fields = line.split("\t"); /* aggregate type, key, event type, payload */
      String id = String.format("00000000-0000-7000-8000-%012d", events.size() + 1);
      events.add(new Event(bytes(fields[1]), bytes(id), bytes(fields[3])));
    }
  }

  static void send(String topic, Event event) {
    var record = new ProducerRecord<>(topic, event.key, event.payload);
    record.headers().add(new RecordHeader("id", event.id));
    producer.send(record, (stored, error) -> {
      if (error == null)
        acknowledged.incrementAndGet();
      else
        System.err.println("Produce.java: " + error);
    });
  }

  static double cpuSeconds() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
  }

  static void warmUp(String topic) {
    for (int n = 0; n < WARM; n++)
      send(topic, events.get(n % events.size()));
    producer.flush();
  }

  static void drain(String topic) {
    double cpu = cpuSeconds();
    long start = System.nanoTime();
    for (Event event : events)
      send(topic, event);
    producer.flush();
    double seconds = (System.nanoTime() - start) / 1e9;
    int count = events.size();
    System.out.printf(Locale.ROOT, "{\"events\": %d, \"seconds\": %.3f, \"rate\": %.0f, \"cpu_us_per_event\": %.3f}%n",
        count, seconds, count / seconds, (cpuSeconds() - cpu) / count * 1e6);
  }

  static void pace(String topic, double rate, String out) throws IOException {
    try (PrintWriter times = new PrintWriter(out)) {
      long start = System.nanoTime();
      for (int n = 0; n < events.size(); n++) {
        for (long left; (left = start + (long) (n / rate * 1e9) - System.nanoTime()) > 0;)
          LockSupport.parkNanos(left);
        times.println(ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) + " 0");
        send(topic, events.get(n));
      }
      producer.flush();
    }
    System.out.printf("{\"events\": %d}%n", events.size());
  }

  public static void main(String[] arguments) throws IOException {
    String topic = arguments[1];
    read();
    producer = new KafkaProducer<>(
        Map.of("bootstrap.servers", arguments[0], "linger.ms", arguments[2], "acks", "all", "enable.idempotence", "true",
            "max.in.flight.requests.per.connection", "5", "compression.type", "lz4", "batch.size", "131072"),
        new ByteArraySerializer(), new ByteArraySerializer());
    warmUp(arguments[3]);
    producer.partitionsFor(topic); /* connected before the clock starts, as a running relay is */
    if (arguments[4].equals("drain"))
      drain(topic);
    else
      pace(topic, Double.parseDouble(arguments[5]), arguments[6]);
    producer.close();
    if (acknowledged.get() != WARM + events.size()) {
      System.err.printf("Produce.java: %d of %d acknowledged%n", acknowledged.get(), WARM + events.size());
      System.exit(1);
    }
  }
}
