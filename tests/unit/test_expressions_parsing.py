"""What is no key expression is refused, and the column says where; what is one can be read."""

from __future__ import annotations

import pytest

from queuelake.expressions import BadExpressionError, parse_expression
from queuelake.expressions.parser import EXPRESSION_BYTES_MAX, NESTING_MAX
from tests.unit.expression_fields import key_of, make_fields


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "the expression is empty"),
        ("  \n ", 5, "the expression is empty"),
        ("lowr(message.from)", 1, "unknown function 'lowr'; did you mean 'lower'?"),
        ("zzz('a')", 1, "unknown function 'zzz'"),
        ("concat([message.from, uper('a')])", 23, "unknown function 'uper'"),
        ("lower()", 1, "lower() has 0 arguments, takes 1"),
        ("lower('a', 'b')", 1, "lower() has 2 arguments, takes 1"),
        ("concat(['a', substr('a')])", 14, "substr() has 1 argument, takes 2 to 3"),
        ("iif('a', 'b')", 1, "iif() has 2 arguments, takes 3"),
        ("coalesce()", 1, "coalesce() has 0 arguments, takes at least 1"),
        ("timestamp_s(1)", 1, "timestamp_s() has 1 argument, takes 0"),
        ("lower", 6, "the function 'lower' needs its '('"),
        ("from", 1, "unknown variable 'from': variables begin with 'message.'"),
        ("lower(clientid)", 7, "unknown variable 'clientid'"),
        ("message.form", 1, "unknown variable 'message.form'"),
        ("message.headers.user", 1, "unknown variable 'message.headers.user'"),
        ("message.payload.a.b", 1, "use json_value(message.payload, 'a.b')"),
        ("message..topic", 1, "unknown variable"),
        ("message", 1, "'message' is a group of variables; name one of them"),
        ("message.headers", 1, "is a group of variables"),
        ("message.headers.properties.User-Property", 1, "is a group of variables"),
        ("message.headers.properties.", 1, "is a group of variables"),
        ("concat(['a', 'b'", 8, "'[' is never closed"),
        ("concat(['a', 'b']", 7, "'(' is never closed"),
        ("concat(", 7, "'(' is never closed"),
        ("concat('a',", 7, "'(' is never closed"),
        ("concat('a' 'b')", 12, "\"'b'\" where ',' or ')' is needed"),
        ("concat(['a')", 12, "')' where ',' or ']' is needed"),
        ("concat('a',)", 12, "')' where a value is needed"),
        ("concat(,'a')", 8, "',' where a value is needed"),
        (")", 1, "')' where a value is needed"),
        ("lower('a') x", 12, "'x' behind the end of the expression"),
        ("lower('a'))", 11, "')' behind the end of the expression"),
        ("'open", 1, "the string which begins with ' is never closed"),
        ('lower("open)', 7, 'the string which begins with " is never closed'),
        ("1 + 2", 3, "unexpected '+'"),
        ("lower(ä)", 7, "unexpected 'ä'"),
        ("${message.from}", 1, "unexpected '$'"),
        ("['a']", 1, "a list cannot be a key"),
        ("9223372036854775808", 1, "is beyond 9223372036854775807"),
        ("lower(1.0e999)", 7, "is too large"),
        ("regex_match(message.from, '(')", 27, "is not an RE2 expression: missing )"),
        (r"regex_match(message.from, '(a)\1')", 27, "is not an RE2 expression"),
        ("lower('\ud800')", 8, "half of a surrogate pair"),
    ],
)
def test_a_mistake_is_told_with_its_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(BadExpressionError) as caught:
        parse_expression(text)
    error = caught.value
    assert problem in error.problem
    assert error.column == column
    assert error.text == text
    assert str(error) == f"key expression {text!r}, column {column}: {error.problem}"
    assert (error.http_status, error.code) == (400, "BAD_REQUEST")


def test_a_text_has_at_most_4_kib() -> None:
    longest = "'" + "x" * (EXPRESSION_BYTES_MAX - 2) + "'"
    assert len(key_of(longest)) == EXPRESSION_BYTES_MAX - 2
    with pytest.raises(BadExpressionError, match="the expression has 4097 bytes, at most 4096"):
        parse_expression(longest + " ")
    with pytest.raises(BadExpressionError, match="at most 4096") as caught:
        parse_expression("ä" * 4000)
    assert len(str(caught.value)) < 400, "a long text is not shown as a whole"


def test_calls_nest_64_deep() -> None:
    assert key_of("lower(" * NESTING_MAX + "'A'" + ")" * NESTING_MAX) == "a"
    with pytest.raises(BadExpressionError, match="nested deeper than 64 levels") as caught:
        parse_expression("lower(" * (NESTING_MAX + 1) + "'A'" + ")" * (NESTING_MAX + 1))
    assert caught.value.column == 6 * (NESTING_MAX + 1)


def test_as_many_calls_as_fit_may_stand_beside_each_other() -> None:
    assert key_of("concat([" + ",".join(["lower('A')"] * 300) + "])") == "a" * 300


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (" concat ( [ 'a' ,\t\"b\" ]\r\n) ", "ab"),
        ("'it has \"quotes\"'", 'it has "quotes"'),
        ('"it\'s"', "it's"),
        (r"'no \n escapes'", r"no \n escapes"),
        ("''", ""),
        ("true", "true"),
        ("+5", "5"),
        ("concat(['(', ',', ']'])", "(,]"),
        ("join_to_string([])", ""),
        ("concat([any_to_str([[1, []], ['a']])])", '[[1,[]],["a"]]'),
    ],
)
def test_spaces_strings_and_numbers(text: str, key: str) -> None:
    assert key_of(text) == key


def test_the_default_is_known_without_fields() -> None:
    assert parse_expression("message.from").is_client_id
    assert parse_expression(" message.from\n").is_client_id
    assert not parse_expression("lower(message.from)").is_client_id
    expression = parse_expression(" message.from ")
    assert (expression.text, expression.evaluate(make_fields())) == (" message.from ", b"dev-1")
