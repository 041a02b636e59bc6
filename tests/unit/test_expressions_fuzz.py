"""Any text is an expression or refused; any message has a key or an EvaluationError."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.expressions import BadExpressionError, EvaluationError, Fields, parse_expression
from queuelake.expressions.functions import FORMS, FUNCTIONS, UNLIMITED
from queuelake.expressions.variables import PROPERTY_NAMES, VARIABLES
from queuelake.protocol import properties as p

WORDS = (
    *("all", "leading", "trailing", "both", "notrim", "nocrlf", "urlsafe", "no_padding"),
    *("md5", "sha256", "shake128", "~s~b", "~5.2f~n", "~-3.2.xc", "(a)(b)?", "[a-z]*", "$", "&"),
    *(r"\1", r"\g{0}", "a.b", "{}", "00ff", "aGk=", "a.eyJhIjoxfQ.c", r"\x41\n", "+/#", "/", ""),
)
STRINGS = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_characters="'", exclude_categories=["Cs"]), max_size=8),
).map(lambda word: f"'{word}'")
NUMBERS = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.integers(-3, 40),
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3)),
)
NAMES = [
    *(f"message.{name}" for name in VARIABLES),
    *(f"headers.properties.{name}" for name in PROPERTY_NAMES),
    *("headers.properties.User-Property.k", "headers.properties.None"),
]
LEAVES = st.one_of(
    STRINGS, NUMBERS.map(str), st.sampled_from(NAMES), st.sampled_from(["true", "false", "[]"])
)


def counts(name: str) -> st.SearchStrategy[int]:
    if name in FORMS:
        _, least, most = FORMS[name]
    else:
        least, most = FUNCTIONS[name].arguments_min, FUNCTIONS[name].arguments_max
    return st.integers(least, least + 2 if most == UNLIMITED else most)


@st.composite
def calls(draw: st.DrawFn, arguments: st.SearchStrategy[str]) -> str:
    name = draw(st.sampled_from(sorted([*FUNCTIONS, *FORMS])))
    count = draw(counts(name))
    return f"{name}({', '.join([draw(arguments) for _ in range(count)])})"


ARGUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        calls(inner), st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
    ),
    max_leaves=12,
)
PAIRS = st.tuples(
    st.sampled_from([b"k", b"other"]),
    st.text(max_size=8).map(lambda text: text.encode(errors="ignore")),
)
PROPERTIES = st.one_of(
    st.binary(max_size=20),
    st.lists(PAIRS, max_size=3).map(p.write_user),
    st.binary(max_size=8).map(lambda data: p.write_value(p.CORRELATION_DATA, data)),
    st.integers(0, 2**32 - 1).map(lambda number: p.write_number(p.MESSAGE_EXPIRY, number)),
)
JSON = st.sampled_from(
    [b'{"a": {"b": [1, null]}}', b'{"a": 1e300}', b"[[[]]]", b'{"a": "\\ud800"}', b"1" * 5000]
)


@st.composite
def messages(draw: st.DrawFn) -> Fields:
    dice = random.Random(draw(st.integers(0, 9)))
    return Fields(
        topic=draw(st.one_of(st.just(b"a/b/c"), st.binary(max_size=12))),
        payload=draw(st.one_of(JSON, st.binary(max_size=40))),
        qos=draw(st.integers(0, 2)),
        retain=draw(st.booleans()),
        dup=draw(st.booleans()),
        client_id=draw(st.text(max_size=8)),
        timestamp_ms=draw(st.integers(0, 2**62)),
        message_id=draw(st.text(max_size=8)),
        properties=draw(PROPERTIES),
        username=draw(st.none() | st.text(st.characters(), max_size=4)),
        peername=draw(st.sampled_from(["", "[::1]:1", "1.2.3.4:5"])),
        proto_ver=draw(st.sampled_from([3, 4, 5])),
        environment={"QUEUELAKE_VAR_k": draw(st.text(max_size=4))},
        now_ms=draw(st.integers(0, 2**62)),
        dice=dice.randrange,
    )


@settings(max_examples=400, deadline=None)
@given(calls(ARGUMENTS), messages())
def test_a_message_has_a_key_or_an_evaluation_error(text: str, fields: Fields) -> None:
    try:
        expression = parse_expression(text)
        key = expression.evaluate(fields)
    except (BadExpressionError, EvaluationError):
        return
    assert key.decode().encode() == key
    assert len(key) <= 4 * 1_048_576


@settings(deadline=None)
@given(st.one_of(st.text(max_size=40), calls(ARGUMENTS)), st.data())
def test_a_text_is_an_expression_or_refused_at_a_column_it_has(
    text: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(text)))
    for tried in (text, text[:cut], text[cut:], text[:cut] + "'" + text[cut:]):
        try:
            parse_expression(tried)
        except BadExpressionError as error:
            assert 1 <= error.column <= len(tried) + 1
            assert error.problem
