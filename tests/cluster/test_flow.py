"""The flow between two nodes, where the order of events is too rare for dice."""

from __future__ import annotations

from queuelake.cluster.flow import Arrival, Flow


def test_who_began_again_because_of_a_dead_process_is_not_followed_as_if_nothing_was() -> None:
    ours, theirs = Flow(1), Flow(2)
    assert ours.arrive(theirs.next_head("b", 10), 10) is Arrival.NEXT  # says: for any
    dead = Flow(3).next_head("a", 0)
    theirs.arrive(dead, 0)  # a late word of our predecessor
    ahead = ours.next_head("a", 10)
    assert theirs.is_new_life(ahead)
    assert theirs.arrive(ahead, 10) is Arrival.NEXT
    again = theirs.next_head("b", 10)
    assert ours.arrive(again, 10) is Arrival.GAP, "it dropped all tunnels when it began again"
    assert ours.arrive(theirs.next_head("b", 10), 10) is Arrival.NEXT


def test_a_greeting_names_no_life_and_is_no_message_of_the_flow() -> None:
    ours, theirs = Flow(1), Flow(2)
    assert ours.arrive(theirs.next_head("b", 10), 10) is Arrival.NEXT
    assert ours.arrive(theirs.greeting("b"), 0) is Arrival.NEXT
    assert ours.received == 1
    assert Flow(7).arrive(ours.next_head("a", 0), 0) is Arrival.STRANGE
