"""Which messages were delivered under the ids of their producers, for settlements to find them.

Producers choose their ids without knowing of each other, so one id may stand for several messages.
Then a client settles those it holds, the one delivered first before the others.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.engine.groups import Group

IDS_MAX: Final = 100_000
PLACES_PER_ID_MAX: Final = 1_000

Place = tuple[int, int]  # partition and sequence


@final
class DeliveredIds:
    """Of one queue; the longest known are forgotten first."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[tuple[str, bytes], list[Place]] = {}

    def note(self, group: Group, message_id: bytes, partition: int, seq: int) -> None:
        key = (group.name, message_id)
        places = self._places.get(key)
        if places is None:
            self._places[key] = [(partition, seq)]
            if len(self._places) > IDS_MAX:
                self._places = dict(list(self._places.items())[IDS_MAX // 2 :])
        elif (partition, seq) not in places:
            there = [one for one in places if one[1] not in group.lanes[one[0]].settled]
            self._places[key] = [*there[1 - PLACES_PER_ID_MAX :], (partition, seq)]

    def find(self, group: Group | None, message_id: bytes, client_id: str) -> Place | None:
        """The message a client means which settles this id in a group."""
        if group is None or not self._places:
            return None
        places = self._places.get((group.name, message_id))
        if places is None:
            return None
        if len(places) > 1:
            for place in places:
                held = group.lanes[place[0]].held.get(place[1])
                if held is not None and held.consumer.name == client_id:
                    return place
        return places[-1]
