"""Two workers share a queue; what fails comes again, what can never work becomes a dead letter.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/work_queue.py [PORT]`.
"""

import asyncio
import sys

from queuelake.client import Client, Delivery, Subscription

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
QUEUE = "examples/images"


async def resize(message: Delivery) -> None:
    if message.payload == b"not-an-image":
        await message.reject("unknown format")
    elif message.payload == b"image-3" and message.delivery_count == 1:
        await message.nack(delay=0.2)  # a passing fault: again in a moment
    else:
        await message.ack()


async def work(name: str, done: asyncio.Queue[str]) -> None:
    """One worker, with a connection of its own as it has in real life."""
    async with Client("127.0.0.1", PORT, client_id=f"resizer-{name}") as client:
        async for message in client.queue(QUEUE).consume(group="resizers", prefetch=2):
            await resize(message)
            done.put_nowait(f"{message.payload.decode()} delivery {message.delivery_count}")


async def first(messages: Subscription[Delivery]) -> Delivery:
    async for message in messages:
        return message
    raise AssertionError("a subscription does not end by itself")


async def main() -> None:
    done: asyncio.Queue[str] = asyncio.Queue()
    workers = [asyncio.create_task(work(name, done)) for name in ("a", "b")]
    async with Client("127.0.0.1", PORT, client_id="uploader") as client:
        for number in range(6):
            await client.queue(QUEUE).publish(f"image-{number}", key=f"user-{number % 3}")
        await client.queue(QUEUE).publish("not-an-image")
        for _ in range(8):  # seven messages, one of them twice
            print("worked on", await asyncio.wait_for(done.get(), 20))
        letter = await first(client.queue(f"dlq/{QUEUE}").consume(group="operators"))
        print("dead letter:", letter.payload.decode(), "because", letter.properties["dlq-reason"])
        await letter.ack()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


asyncio.run(main())
