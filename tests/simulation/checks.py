"""What must hold in the simulation: every function returns the broken promises in words."""

from __future__ import annotations

from collections.abc import Iterator

from queuelake.protocol.topics import matches
from queuelake.storage import api, records
from queuelake.storage.memory import MemoryStore
from queuelake.storage.queue_rows import owns_chunks, read_queue, row_chunks
from tests.simulation.client import RETAINED_PREFIX, Client, Sent

EVERYTHING = 1 << 40


def promised(subscriber: Client, publishers: list[Client]) -> Iterator[Sent]:
    """The messages which a subscriber must get, once they are acknowledged."""
    for publisher in publishers:
        for message in publisher.sent:
            if is_promised(subscriber, message):
                yield message


def is_promised(subscriber: Client, message: Sent) -> bool:
    return (
        0 <= subscriber.subscribed_at < message.at
        and not message.retain
        and any(matches(one.encode(), message.topic.encode()) for one in subscriber.filters)
    )


def stored_for(store: MemoryStore, subscriber: Client) -> set[tuple[str, int]]:
    """Topic and number of everything in the stored queue of a client."""
    found = set()
    with store.view() as view:
        for key, value in view.scan(api.SESSIONS, b"", b"\xff" * 9):
            if records.decode_session(value).client_id == subscriber.name:
                for entry in read_queue(view, int.from_bytes(key, "big"), 0, EVERYTHING):
                    number = int(entry.message.payload().split(b":")[0])
                    found.add((entry.message.topic.decode(), number))
    return found


def unstored(store: MemoryStore, subscribers: list[Client], message: Sent) -> list[str]:
    """Those who have neither got the message nor have it in the store."""
    wrong = []
    for one in subscribers:
        if one.cleaning or not is_promised(one, message):
            continue
        key = (message.topic, message.number)
        if key not in {(got.topic, got.number) for got in one.received}:
            if key not in stored_for(store, one):
                wrong.append(f"{key} is confirmed, but {one.name} would lose it in a crash")
    return wrong


def order(subscriber: Client, publishers: list[Client], refusals: bool) -> list[str]:
    """First arrivals on each topic are in the order of publishing.

    MQTT 5 publishers may be refused one message and not hear of it: the next ones are taken, and
    the refused one is sent again after them. That order is the publisher's.
    """
    counted = {(one.topic, one.number) for one in promised(subscriber, publishers)}
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = {}
    for one in subscriber.received:
        key = (one.topic, one.number)
        if key not in counted or key in seen or (refusals and "/pub5/" in one.topic):
            continue
        seen.add(key)
        if one.number < last.get(one.topic, 0):
            return [f"{subscriber.name}: {one} after {last[one.topic]}"]
        last[one.topic] = one.number
    return []


def exactly_once(subscriber: Client) -> list[str]:
    """No message arrives twice at QoS 2."""
    seen = set()
    for one in subscriber.received:
        if one.qos == 2 and not one.retain:
            key = (one.topic, one.number)
            if key in seen:
                return [f"{subscriber.name}: {one} arrived twice"]
            seen.add(key)
    return []


def refused_stay_away(subscriber: Client, publishers: list[Client]) -> list[str]:
    """A persistent session never gets what its publisher was told is not stored."""
    got = {(one.topic, one.number) for one in subscriber.received}
    return [
        f"{subscriber.name}: got {message}, which was refused"
        for message in promised(subscriber, publishers)
        if message.was_refused() and (message.topic, message.number) in got
    ]


def complete(subscriber: Client, publishers: list[Client]) -> list[str]:
    """In the end everything acknowledged has arrived."""
    got = {(one.topic, one.number) for one in subscriber.received}
    return [
        f"{subscriber.name}: {message} is lost"
        for message in promised(subscriber, publishers)
        if message.outcome == "acknowledged" and (message.topic, message.number) not in got
    ]


def shared_is_complete(members: list[Client], publishers: list[Client]) -> list[str]:
    """One member or another has got everything since the one came whose session never ended."""
    got = {(one.topic, one.number) for client in members for one in client.everything()}
    since = members[0].first_subscribed_at
    return [
        f"shared: {message} is lost"
        for publisher in publishers
        for message in publisher.sent
        if message.outcome == "acknowledged" and not message.retain
        if 0 <= since < message.at and (message.topic, message.number) not in got
    ]


def retained_at_subscribe(subscriber: Client, publishers: list[Client]) -> list[str]:
    """Who subscribes gets what was retained before, or something newer."""
    newest: dict[str, int] = {}
    for one in subscriber.received:
        if one.topic.startswith(RETAINED_PREFIX):
            newest[one.topic] = max(one.number, newest.get(one.topic, 0))
    wrong = []
    for publisher in publishers:
        for message in publisher.sent:
            if message.retain and 0 <= message.done_at < subscriber.subscribing_at:
                if newest.get(message.topic, 0) < message.number:
                    wrong.append(f"{subscriber.name}: retained {message} never came")
    return wrong


def retained_values(found: dict[str, int], publishers: list[Client], refusals: bool) -> list[str]:
    """What is retained is what was acknowledged last; for refusals see `order`."""
    expected: dict[str, set[int]] = {}
    for publisher in publishers:
        repeated: dict[str, set[int]] = {}
        for message in publisher.sent:
            if message.retain and message.outcome == "acknowledged":
                before = repeated.setdefault(message.topic, set())
                if refusals and publisher.version == 5 and message.times > 1:
                    before.add(message.number)
                expected[message.topic] = {message.number} | before
            elif message.retain and not message.was_refused():
                expected.setdefault(message.topic, {0}).add(message.number)
    return [
        f"retained on {topic} is {found.get(topic, 0)}, may be {sorted(numbers)}"
        for topic, numbers in expected.items()
        if found.get(topic, 0) not in numbers
    ]


def store_is_whole(store: MemoryStore) -> list[str]:
    """Rows, references and chunks fit together, and all belong to sessions which exist."""
    tables = store.tables
    wrong = []
    sessions = set(tables[api.SESSIONS])
    chunks = {key[:8] for key in tables[api.MESSAGES]}
    references = set(tables[api.REFERENCES])
    owned = {
        chunk for row in tables[api.QUEUE].values() if owns_chunks(row) for chunk in row_chunks(row)
    }
    referenced = {key[:8] for key in references}
    if chunks != referenced | owned or referenced & owned:
        wrong.append(f"chunks {_numbers(chunks)}, referenced {_numbers(referenced | owned)}")
    if {key[8:] for key in references} != {
        key for key, row in tables[api.QUEUE].items() if not owns_chunks(row)
    }:
        wrong.append("references and rows differ")
    for table in (api.QUEUE, api.SUBSCRIPTIONS, api.CURSORS):
        orphans = {key[:8] for key in tables[table]} - sessions
        if orphans:
            wrong.append(f"{api.TABLE_NAMES[table]} of sessions which are gone")
    return wrong


def _numbers(keys: set[bytes]) -> list[int]:
    return sorted(int.from_bytes(key, "big") for key in keys)
