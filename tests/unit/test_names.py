"""Addresses below `$queue/`: what each means, and why the others mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake import names
from queuelake.names import BadAddressError

LONGEST = "n" * names.NAME_BYTES_MAX


@pytest.mark.parametrize(
    ("topic", "name", "operation"),
    [
        (b"$queue/a", "a", names.ENQUEUE),
        (b"$queue/tasks/image-processing", "tasks/image-processing", names.ENQUEUE),
        (b"$queue/a/$ack", "a", names.SETTLE_ACK),
        (b"$queue/a/b/$nack", "a/b", names.SETTLE_NACK),
        (b"$queue/a/$reject", "a", names.SETTLE_REJECT),
        (b"$queue/a/$config", "a", names.CONFIGURE),
        (b"$queue/dlq/a/$ack", "dlq/a", names.SETTLE_ACK),
        (b"$queue/responses/5f0c", "responses/5f0c", names.ENQUEUE),
        ("$queue/grün/a$b".encode(), "grün/a$b", names.ENQUEUE),
    ],
)
def test_a_publish_enqueues_settles_or_configures(topic: bytes, name: str, operation: int) -> None:
    address = names.parse_publish(topic)
    assert (address.name, address.operation) == (name, operation)


@pytest.mark.parametrize(
    "topic",
    [
        *(b"$queue/", b"$queue//", b"$queue/a/", b"$queue//a", b"$queue/a//b"),
        *(b"$queue/$ack", b"$queue/a/$ack/42", b"$queue/a/$ack/$nack", b"$queue/$x/a"),
        *(b"$queue/a/$other", b"$queue/dlq", b"$queue/responses", b"$queue/dlq/$ack"),
        *(b"$queue/a/+", b"$queue/a#", b"$queue/" + b"n" * 401, b"$queue/a\0", b"$queue/\xff"),
    ],
)
def test_what_means_nothing_is_refused_as_a_topic_name(topic: bytes) -> None:
    with pytest.raises(BadAddressError) as caught:
        names.parse_publish(topic)
    assert caught.value.reason_code == 0x90
    assert caught.value.http_status == 400


@pytest.mark.parametrize(
    ("topic_filter", "name", "pattern"),
    [
        (b"$queue/a", "a", b""),
        (b"$queue/a/b", "a/b", b""),
        (b"$queue/a/#", "a", b"#"),
        (b"$queue/a/b/+/c/#", "a/b", b"+/c/#"),
        (b"$queue/dlq/a", "dlq/a", b""),
    ],
)
def test_a_subscription_has_a_name_and_a_pattern(
    topic_filter: bytes, name: str, pattern: bytes
) -> None:
    assert names.parse_subscribe(topic_filter) == (name, pattern)


@pytest.mark.parametrize(
    "topic_filter",
    [
        *(b"$queue/", b"$queue/#", b"$queue/+/a", b"$queue/a/$ack", b"$queue/a/+/$ack"),
        *(b"$queue/a//#", b"$queue/dlq/#", b"$queue/responses/+", b"$queue/\xff"),
    ],
)
def test_what_means_nothing_is_refused_as_a_topic_filter(topic_filter: bytes) -> None:
    with pytest.raises(BadAddressError) as caught:
        names.parse_subscribe(topic_filter)
    assert caught.value.reason_code == 0x8F


@pytest.mark.parametrize("segment", ["tasks/image", "$queue/tasks/image", "$queue$tasks$image"])
def test_a_path_names_a_queue_in_three_ways(segment: str) -> None:
    assert names.queue_name_from_path(segment) == "tasks/image"


@pytest.mark.parametrize("segment", ["", "$queue$", "$queue/", "$tasks", "a//b", "a/+", "a\ud800"])
def test_a_path_which_names_no_queue_is_refused(segment: str) -> None:
    with pytest.raises(BadAddressError):
        names.queue_name_from_path(segment)


def test_the_longest_name_has_dead_letters() -> None:
    assert names.bare_name(LONGEST) == LONGEST
    dead = names.dead_letter_name(LONGEST)
    assert names.bare_name(names.address(dead)) == dead
    with pytest.raises(BadAddressError, match="401 bytes, the limit is 400"):
        names.bare_name(LONGEST + "n")


def test_dead_letters_and_replies_are_known_by_their_first_level() -> None:
    assert names.dead_letter_name("a/b") == "dlq/a/b"
    assert names.is_dead_letter("dlq/a")
    assert not names.is_dead_letter("dlqs/a")
    assert names.is_response("responses/1")
    assert not names.is_response("a/responses/1")


@given(st.text("a/+#%25FB", min_size=1, max_size=12))
def test_a_message_queue_is_found_by_its_dead_letters(name: str) -> None:
    letters = names.dead_letter_name_of_filter(name)
    assert name in names.filters_of_dead_letter_name(letters)
    for one in names.filters_of_dead_letter_name(letters):
        assert names.dead_letter_name_of_filter(one) == letters
