"""The books of `make books` are right only if their reader loses nothing."""

import threading
import time

from queues import Queue


def test_a_queue_is_read_to_its_end_while_the_broker_stands_still_again_and_again(broker, exchange):
    queue = Queue(broker, exchange, arguments={"x-queue-type": "quorum"})
    channel = broker.channel()
    channel.confirm_delivery()
    for n in range(3000):
        channel.basic_publish(exchange, "k", str(n).encode())
    channel.connection.close()
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            broker.freeze()
            time.sleep(0.4)
            broker.thaw()
            done.wait(0.01)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        found = queue.read_all()
    finally:
        done.set()
        disturber.join()
    assert [int(body) for _, _, body in found] == list(range(3000))
