"""Any bytes below `$queue/` are an address or a refusal, and an address reads back as itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake import names

LEVELS = st.text(st.characters(exclude_characters="/+#\0", exclude_categories=["Cs"]), min_size=1)
NAMES = (
    st.lists(LEVELS.filter(lambda level: not level.startswith("$")), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda name: name not in ("dlq", "responses"))
    .filter(lambda name: len(name.encode()) <= names.NAME_BYTES_MAX)
)
SUFFIXES = {
    "": names.ENQUEUE,
    "/$ack": names.SETTLE_ACK,
    "/$nack": names.SETTLE_NACK,
    "/$reject": names.SETTLE_REJECT,
    "/$config": names.CONFIGURE,
}


@given(NAMES, st.sampled_from(sorted(SUFFIXES)))
def test_an_address_reads_back_as_its_name(name: str, suffix: str) -> None:
    address = names.parse_publish((names.address(name) + suffix).encode())
    assert (address.name, address.operation) == (name, SUFFIXES[suffix])
    assert names.queue_name_from_path(name) == name
    assert names.queue_name_from_path(names.address(name)) == name


@given(NAMES, st.sampled_from(["", "+", "#", "+/a", "a/+/#"]))
def test_name_and_pattern_make_up_the_filter(name: str, pattern: str) -> None:
    topic_filter = names.address(name) + (f"/{pattern}" if pattern else "")
    found, rest = names.parse_subscribe(topic_filter.encode())
    assert names.address(found) + (f"/{rest.decode()}" if rest else "") == topic_filter


@given(NAMES)
def test_the_dead_letters_of_a_queue_are_a_queue(name: str) -> None:
    dead = names.dead_letter_name(name)
    assert names.is_dead_letter(dead)
    assert names.parse_publish(names.address(dead).encode()).name == dead


@given(st.one_of(st.binary(max_size=30), st.text("ab/$+#\0", max_size=12).map(str.encode)))
def test_any_bytes_are_an_address_or_a_refusal(rest: bytes) -> None:
    for parse in (names.parse_publish, names.parse_subscribe):
        try:
            parse(names.PREFIX + rest)
        except names.BadAddressError as error:
            assert error.reason_code in (0x8F, 0x90)
