"""A queue in a minute, without asyncio: publish, consume, ack.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/first_queue.py [PORT]`.
"""

import sys

from queuelake.client.blocking import Client

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883

with Client("127.0.0.1", PORT) as client:
    queue = client.queue("examples/first")
    for number in range(3):
        queue.publish(f"task {number}", key="one-key-keeps-the-order")
    print("published 3 messages, each one on disk when publish() returned")

    for message in queue.consume(group="workers"):
        print(message.payload.decode(), "in partition", message.partition)
        message.ack()
        if message.payload == b"task 2":
            break
