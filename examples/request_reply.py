"""Ask a service over queues: the request waits until a worker is there, the reply finds its way.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/request_reply.py [PORT]`.
"""

import asyncio
import sys

from queuelake.client import Client, RequestTimeoutError

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
SERVICE = "requests/example-auth"


async def serve() -> None:
    async with Client("127.0.0.1", PORT) as client:
        async for request in client.serve(SERVICE):
            allowed = request.payload == b"anna"
            await client.reply(request, "welcome" if allowed else "who are you?")


async def main() -> None:
    async with Client("127.0.0.1", PORT) as client:
        try:
            await client.request(SERVICE, "anna", timeout=0.5)
        except RequestTimeoutError as error:
            print("nobody serves yet:", error)
        serving = asyncio.create_task(serve())
        for user in ("anna", "bert"):
            reply = await client.request(SERVICE, user, timeout=10)
            print(user, "->", reply.payload.decode())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


asyncio.run(main())
