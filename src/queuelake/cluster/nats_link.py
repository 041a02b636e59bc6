"""One connection to NATS that comes back by itself, and questions which are answered over it.

Rules, for which nats-py has other defaults:

- Nothing waits for a connection. What cannot be sent now is refused or dropped: a frame, or an
  append, which arrives after a gap does more harm than one that is lost.
- A connection which is lost takes everything with it: what was not sent yet, and all questions
  whose answer had not come. Who asked hears of it at once.
- A server that does not answer for a few seconds is left for another one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from nats import errors
from nats.aio.msg import Msg

from queuelake.cluster.engine import EngineError
from queuelake.cluster.nats_client import NatsClient, Receiver
from queuelake.cluster_settings import ClusterConfig
from queuelake.errors import ConfigError

CLOSE_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 2.0
# Only the leader of a stream answers about it. While there is none nobody does, and who asks again
# soon hears soon of the next one.
API_TIMEOUT_S: Final = 1.0
VERSION_MIN: Final = (2, 10)
NOBODY_LISTENS: Final = 503  # a status

log = logging.getLogger("queuelake.cluster")

Answer = asyncio.Future[Msg]


class NoAnswerError(EngineError):
    """There was no answer: no connection, or not in time."""


class NobodyListensError(NoAnswerError):
    """NATS knows nobody who listens: what was sent reached no one."""


class ApiError(EngineError):
    """JetStream answered with an error, which has a number."""

    def __init__(self, number: int, description: str) -> None:
        super().__init__(f"{description} ({number})")
        self.number = number


class Link:
    """The connection of a node; `Link.connect()` makes it."""

    def __init__(self, config: ClusterConfig) -> None:
        self.connected = False
        self.on_connection: Callable[[bool], None] = lambda connected: None
        self._client = NatsClient(config)
        self._answers: dict[str, Answer] = {}
        self._asked = 0
        self._inbox = ""
        self._shown_error = ""

    @classmethod
    async def connect(cls, config: ClusterConfig) -> Link:
        """Connect to the first server that answers, for as long as it takes.

        Raises:
            ConfigError: a server answered, and it does not want us or we do not want it.
        """
        link = cls(config)
        client = link._client
        await client.connect(
            **client.connect_options(),
            error_cb=link._on_error,
            disconnected_cb=link._on_disconnected,
            reconnected_cb=link._on_connected,
        )
        if client.version() < VERSION_MIN:
            found = ".".join(map(str, client.version()))
            await link.close()
            raise ConfigError([f"cluster.urls: NATS {found} is too old; allowed: 2.10 or newer"])
        link._inbox = client.new_inbox()
        await client.receive(f"{link._inbox}.*", link._on_answer)
        await link._on_connected()
        return link

    async def close(self) -> None:
        self.connected = False
        self._lose_answers()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._client.close()
        except (TimeoutError, OSError):
            self._client.abort()

    @property
    def payload_bytes_max(self) -> int:
        """The longest message, headers included, which the server takes."""
        return self._client.max_payload

    @property
    def unsent_bytes(self) -> int:
        return self._client.unsent_bytes

    def send(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send, or raise at once.

        Raises:
            NoAnswerError: there is no connection.
        """
        if not self.connected:
            raise NoAnswerError("no connection to NATS")
        if len(data) > self.payload_bytes_max:
            raise NoAnswerError(f"not sent: {len(data)} bytes, allowed: {self.payload_bytes_max}")
        self._client.post(subject, data, reply, headers or {})

    def ask(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> Answer:
        """Send a question. Its answer comes later; `answer()` waits for it.

        Raises:
            NoAnswerError: there is no connection.
        """
        self._asked += 1
        token = str(self._asked)
        future: Answer = asyncio.get_running_loop().create_future()
        self.send(subject, data, f"{self._inbox}.{token}", headers)
        self._answers[token] = future
        future.add_done_callback(lambda _: self._answers.pop(token, None))
        return future

    async def answers(
        self, questions: list[Answer], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[Msg]:
        """Wait for the answers to some questions.

        Raises:
            NobodyListensError: there was nobody who could have answered one of them.
            NoAnswerError: no answer in time, or the connection was lost.
        """
        try:
            async with asyncio.timeout(timeout_s):
                messages = [await question for question in questions]
        except TimeoutError:
            raise NoAnswerError(f"no answer within {timeout_s:g} s") from None
        finally:
            for question in questions:
                question.cancel()  # of those who have none yet, nobody waits for one
        if any(status_of(message) == NOBODY_LISTENS for message in messages):
            raise NobodyListensError("nobody listens")
        return messages

    async def answer(self, question: Answer, timeout_s: float = ANSWER_TIMEOUT_S) -> Msg:
        """As `answers()`, for one."""
        return (await self.answers([question], timeout_s))[0]

    async def call(
        self, subject: str, body: object, timeout_s: float = API_TIMEOUT_S
    ) -> dict[str, Any]:
        """A request of the JetStream API.

        Raises:
            ApiError: it was refused.
            NoAnswerError: as of `answer()`.
        """
        question = self.ask(f"$JS.API.{subject}", msgspec.json.encode(body))
        return read_answer(await self.answer(question, timeout_s))

    async def subscribe(self, subject: str, receiver: Receiver) -> None:
        """Call back for each message from now on, over all connections to come."""
        await self._client.receive(subject, receiver)
        if self.connected:
            try:
                await self._client.flush()
            except (errors.Error, OSError) as error:
                log.info("NATS has not confirmed the subscription to %s yet: %s", subject, error)

    def _on_answer(self, message: Msg) -> None:
        future = self._answers.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(message)

    async def _on_connected(self) -> None:
        url = self._client.connected_url
        log.info("connected to NATS at %s", url.netloc if url else "a server")
        self._shown_error = ""
        self.connected = True
        self.on_connection(True)

    async def _on_disconnected(self) -> None:
        self._lose_answers()
        if self.connected:
            log.warning("the connection to NATS is lost")
            self.connected = False
            self.on_connection(False)

    def _lose_answers(self) -> None:
        for future in list(self._answers.values()):
            if not future.done():
                future.set_exception(NoAnswerError("the connection to NATS was lost"))
                future.exception()  # nobody may wait for it any more

    async def _on_error(self, error: Exception) -> None:
        """An error of the connection; trying goes on, with one line until the error changes."""
        text = str(error) or type(error).__name__
        if not self._inbox:
            _refuse_mistake(error, text)
        if text != self._shown_error:
            log.warning("NATS: %s", text.removeprefix("nats: "))
            self._shown_error = text


def _refuse_mistake(error: Exception, text: str) -> None:
    """What trying again cannot mend, at the start: the configuration is wrong."""
    if "authorization violation" in text.lower() or isinstance(error, errors.AuthorizationError):
        raise ConfigError(["cluster: NATS refuses the login; see cluster.user and what is below"])
    if isinstance(error, ssl.SSLError):
        raise ConfigError([f"cluster.ca_file: TLS with NATS failed: {error}"])
    if isinstance(error, errors.SecureConnWantedError):
        raise ConfigError(["cluster.urls: the NATS server has no TLS; allowed: one which needs it"])


def status_of(message: Msg) -> int:
    """The status in the headers of an answer; 0 when there is none, which is the usual case."""
    headers: Mapping[str, str] | None = message.headers
    return int(headers.get("Status", "0")) if headers and not message.data else 0


def read_answer(message: Msg) -> dict[str, Any]:
    """What JetStream answered.

    Raises:
        ApiError: it was refused.
    """
    answer: dict[str, Any] = msgspec.json.decode(message.data)
    error = answer.get("error")
    if error is not None:
        raise ApiError(int(error.get("err_code", 0)), str(error.get("description", "no reason")))
    return answer
