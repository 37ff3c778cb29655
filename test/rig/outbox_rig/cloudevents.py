"""CloudEvents' Java SDK as a consumer: its deserializer in Kafka's console consumer, from the jars under build/."""

import subprocess

from .kafka import java
from .paths import BUILD
from .wait import patient

NO_VALUE = "no value"  # what the console consumer passes to a deserializer instead


def read_by_java(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first `count` records of a topic with one partition, each in the text form of the SDK's CloudEvent."""
    done = subprocess.run(
        java("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
             "--max-messages", str(count), "--timeout-ms", "45000", "--property", f"null.literal={NO_VALUE}",
             "--value-deserializer", "io.cloudevents.kafka.CloudEventDeserializer",
             options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"], jars=f"{BUILD}/cloudevents/*:{BUILD}/kafka/*"),
        capture_output=True, text=True, timeout=patient(90))
    events = done.stdout.removesuffix("\n").split("\n")  # split only at line feeds, not at U+2028
    if done.returncode or len(events) != count:
        raise RuntimeError(f"the Java SDK read {len(events)} of {count} events:\n{done.stdout}\n{done.stderr}")
    return events
