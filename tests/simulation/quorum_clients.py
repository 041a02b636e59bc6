"""Clients of a simulated quorum queue: real client halves, behind a line which loses things."""

from __future__ import annotations

import random
from collections import deque

from queuelake.engine.machine import Command
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import sending as s
from queuelake.engine.quorum.effects import Delivery
from queuelake.engine.quorum.receiving import Query, Receiver


class Client:
    """A publisher and consumer in one. `line` is what it has sent and the leader has not read."""

    def __init__(self, pid: str, tag: str, dice: random.Random) -> None:
        self.pid = pid
        self.tag = tag
        self.dice = dice
        self.sender = s.Sender(pid)
        self.receiver: Receiver | None = None
        self.credited = False
        self.line: deque[tuple[int, Command]] = deque()
        self.query: Query | None = None  # asked, and not answered
        self.inbox: list[Delivery] = []  # passed on, and not answered
        self.is_blocked = False
        self.sent = 0  # messages
        self.confirmed: list[int] = []
        self.refused: set[int] = set()
        self._last_id = -1

    def perform(self, actions: list[s.Action]) -> None:
        for action in actions:
            if isinstance(action, s.Send):
                self.line.append((action.number, action.command))
            elif isinstance(action, s.Confirm):
                self.confirmed.append(action.correlation)
            elif isinstance(action, s.Refuse):
                self.refused.add(action.correlation)
            elif isinstance(action, s.Block):
                assert not self.is_blocked
                self.is_blocked = True
            else:
                assert isinstance(action, s.Unblock)
                assert self.is_blocked
                self.is_blocked = False

    def publish(self, now_ms: int, priority: int, ttl_ms: int) -> None:
        if not self.is_blocked:
            self.sent += 1
            self.perform(self.sender.enqueue(self.sent, 10, now_ms, priority, ttl_ms))

    def checked_out(self, key: int, credited: bool) -> None:
        self.credited = credited
        if self.receiver is None or self.receiver.key != key:
            # Deliveries may have come and gone before the answer did: it begins with the first.
            self.receiver = Receiver(key, 0)
            self._last_id = -1
            self.inbox.clear()
            self.query = None

    def deliver(self, key: int, deliveries: list[Delivery]) -> None:
        if self.receiver is not None and self.receiver.key == key:
            self._pass_on(*self.receiver.receive(deliveries))

    def fill(self, query: Query, deliveries: list[Delivery]) -> None:
        assert self.receiver is not None
        self.query = None
        self._pass_on(*self.receiver.filled(query, deliveries))

    def _pass_on(self, deliveries: list[Delivery], query: Query | None) -> None:
        self.query = query or self.query
        for delivery in deliveries:
            assert delivery.msg_id > self._last_id, "passed on twice, or out of order"
            self._last_id = delivery.msg_id
            self.inbox.append(delivery)

    def timed_out(self, key: int, ids: list[int], now_ms: int) -> None:
        if self.receiver is not None and self.receiver.key == key:
            self.inbox = [one for one in self.inbox if one.msg_id not in ids]
            self.perform(self.sender.answer(s.SETTLE, key, ids, now_ms))

    def answer(self, now_ms: int, only_settles: bool) -> None:
        """Say something about some of the messages in hand."""
        if self.receiver is None or not self.inbox:
            return
        key = self.receiver.key
        count = self.dice.randint(1, len(self.inbox))
        chosen = self.dice.sample(self.inbox, count)
        self.inbox = [one for one in self.inbox if one not in chosen]
        ids = [one.msg_id for one in chosen]
        what = 0 if only_settles else self.dice.choice([0, 0, 0, 0, 1, 1, 2, 3, 4])
        if what < 3:
            kind = (s.SETTLE, s.RETURN, s.DISCARD)[what]
            self.perform(self.sender.answer(kind, key, ids, now_ms))
        elif what == 3:
            failed = self.dice.random() < 0.5
            self.perform(self.sender.command(c.Modify(key, ids, failed), now_ms))
        else:
            notes = {c.DELIVERY_TIME: str(now_ms + 1_000), "why": "busy"}
            if self.dice.random() < 0.5:
                notes[c.DEFERRAL_TOKEN] = self.dice.choice("ab")
            self.perform(self.sender.command(c.Modify(key, ids, annotations=notes), now_ms))

    def leader_changed(self, now_ms: int) -> None:
        self.perform(self.sender.leader_changed(now_ms))
        if self.receiver is not None:
            self.query = self.receiver.ask_again()
