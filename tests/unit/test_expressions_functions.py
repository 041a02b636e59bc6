"""Every function of key expressions: what it gives, and what it does not take."""

from __future__ import annotations

import re

import pytest

from queuelake.expressions import BadExpressionError, EvaluationError, parse_expression
from queuelake.expressions.functions import FORMS, FUNCTIONS
from tests.unit.expression_fields import key_of, make_fields

SHA256_OF_A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
TOKEN = "e30.eyJzdWIiOiJib2IiLCJyb2xlIjp7Im4iOjN9fQ.sig"

EXAMPLES = [
    ("lower('AbÇ')", "abç"),
    ("lower(true)", "true"),
    ("upper('straße')", "STRASSE"),
    ("upper(message.from)", "DEV-1"),
    ("trim('  a b ')", "a b"),
    ("trim('--a-b-', '-')", "a-b"),
    ("trim('xyaxy', 'yx')", "a"),
    ("ltrim('  a ')", "a "),
    ("ltrim('000120', '0')", "120"),
    ("rtrim(' a  ')", " a"),
    ("rtrim('a//', '/')", "a"),
    ("reverse('abc')", "cba"),
    ("reverse('')", ""),
    ("strlen('größe')", "5"),
    ("strlen('')", "0"),
    ("substr('abcdef', 2)", "cdef"),
    ("substr('abcdef', 0, 3)", "abc"),
    ("substr('abc', 9)", ""),
    ("substr('abc', 1, 99)", "bc"),
    ("split('a,,b', ',')", ["a", "b"]),
    ("split('a,,b', ',', 'notrim')", ["a", "", "b"]),
    ("split('a,b,c', ',', 'leading')", ["a", "b,c"]),
    ("split(',b,c', ',', 'leading')", ["b,c"]),
    ("split(',b,c', ',', 'leading_notrim')", ["", "b,c"]),
    ("split('a,b,c', ',', 'trailing')", ["a,b", "c"]),
    ("split('a,b,', ',', 'trailing_notrim')", ["a,b", ""]),
    ("split('a--b', '--')", ["a", "b"]),
    ("split('ab', '')", ["ab"]),
    ("tokens(' a,b, c', ', ')", ["a", "b", "c"]),
    ("tokens('/a//b/', '/')", ["a", "b"]),
    ("tokens('', '/')", []),
    ("tokens('ab', '')", ["ab"]),
    ("concat(['a', 1, 2.50, true])", "a12.5true"),
    ("concat('a', 'b')", "ab"),
    ("concat('a', 'b', message.qos)", "ab1"),
    ("concat(tokens('a/b', '/'))", "ab"),
    ("concat([json_value(message.payload, 'no'), 'x'])", "x"),
    ("join_to_string(['a', 1])", "a, 1"),
    ("join_to_string('-', tokens('a/b', '/'))", "a-b"),
    ("sprintf_s('~s is ~b', ['x', 3])", "x is 3"),
    ("sprintf_s('~5s|~-5s|~2s', ['ab', 'cd', 'cut'])", "   ab|cd   |cu"),
    ("sprintf_s('~.2f|~8.3.0f|~f', [1.239, -2.5, 1])", "1.24|00-2.500|1.000000"),
    ("sprintf_s('~.16b ~.16B ~.2b ~3..0b ~2b', [255, 255, -5, 7, 1234])", "ff FF -101 007 **"),
    ("sprintf_s('~c~3.2c~~~n~i~p~ts', [65, 66, 'skipped', 1.5, 'ü'])", "A BB~\n1.5ü"),
    ("pad('ab', 5)", "ab   "),
    ("pad('ab', 5, 'leading')", "   ab"),
    ("pad('ab', 5, 'both', '*')", "*ab**"),
    ("pad('7', 3, 'leading', '0')", "007"),
    ("pad('abc', 2)", "abc"),
    ("replace('a-b-c', '-', '+')", "a+b+c"),
    ("replace('a-b-c', '-', '+', 'leading')", "a+b-c"),
    ("replace('a-b-c', '-', '', 'trailing')", "a-bc"),
    ("replace('abc', '', 'x')", "abc"),
    ("replace('abc', 'z', 'x', 'trailing')", "abc"),
    ("regex_match('dev-12', '^dev-[0-9]+$')", "true"),
    ("regex_match('dev-x', '[0-9]')", "false"),
    ("regex_match('dev-12', message.from)", "true"),
    ("regex_replace('a1b22', '[0-9]+', '#')", "a#b#"),
    (r"regex_replace('ab-cd', '(\w+)-(\w+)', '\2\g1\g{2}&\&\\')", r"cdabcdab-cd&" + "\\"),
    ("regex_replace('ab', '$', 'X')", "abX"),
    ("regex_extract('2021-05-20', '([0-9]+)-([0-9]+)')", ["2021", "05"]),
    ("regex_extract('b', '(a)?(b)')", ["", "b"]),
    ("regex_extract('none', '([0-9])')", []),
    ("ascii('A')", "65"),
    ("ascii('é')", "195"),
    ("find('a/b/c', '/')", "/b/c"),
    ("find('a/b/c', '/', 'trailing')", "/c"),
    ("find('abc', 'z')", ""),
    ("find('abc', '', 'leading')", "abc"),
    ("rm_prefix('dev-1', 'dev-')", "1"),
    ("rm_prefix('dev-1', 'x')", "dev-1"),
    (r'unescape("a\tb\x41\\n\'\?")', "a\tbA\\n'?"),
    (r"unescape('\x1F600')", "\U0001f600"),
    (r"unescape('\\\\x')", r"\\x"),
    ("unescape('plain')", "plain"),
    ("any_to_str(1.0)", "1.0"),
    (
        "any_to_str(['ä', 1, true, json_value(message.payload, 'sensor')])",
        '["ä",1,true,{"name":"T-1","value":21.5}]',
    ),
    ("is_empty_val('')", "true"),
    ("is_empty_val(0)", "false"),
    ("is_empty_val(tokens('', ','))", "true"),
    ("is_empty(message.headers.properties.User-Property.no)", "true"),
    ("is_empty(message.from)", "false"),
    ("not(str_eq('a', 'b'))", "true"),
    ("not('true')", "false"),
    ("coalesce(['', 'b'])", "b"),
    ("coalesce(message.headers.properties.User-Property.no, message.from)", "dev-1"),
    ("coalesce(tokens(',,b,c', ','))", "b"),
    ("coalesce('', json_value(message.payload, 'gone'), 0)", "0"),
    ("coalesce(lower(message.headers.properties.User-Property.no), 'z')", "z"),
    ("coalesce([message.headers.properties.User-Property.no])", ""),
    ("nth(2, tokens(message.topic, '/'))", "kitchen"),
    ("nth('1', ['a', 'b'])", "a"),
    ("nth(3, ['a', 'b'])", ""),
    ("iif(str_eq('a', 'a'), 'yes', 'no')", "yes"),
    ("iif('', 'yes', 'no')", "no"),
    ("iif(false, 'yes', 'no')", "no"),
    ("iif(message.headers.properties.User-Property.no, 'yes', 'no')", "no"),
    ("iif(true, 'yes', nth(0, ['never']))", "yes"),
    ("if(num_gt(message.qos, 0), 'sure', 'maybe')", "sure"),
    ("if(tokens('', '/'), 'yes', 'no')", "no"),
    ("topic_join(['a', 1, 'b'])", "a/1/b"),
    ("topic_join('a/', 'b')", "a/b"),
    ("topic_join('a', 'b')", "a/b"),
    ("topic_match(message.topic, 'home/+/temp')", "true"),
    ("topic_match('$SYS/a', '#')", "false"),
    ("topic_split('a//b')", ["a", "", "b"]),
    ("topic_split(message.topic)", ["home", "kitchen", "temp"]),
    ("rand_str(4)", "AAAA"),
    ("strlen(rand_str(1024))", "1024"),
    ("rand_int(6)", "5"),
    ("rand_int(1)", "1"),
    ("bin2hexstr('AZ')", "415A"),
    ("bin2hexstr(hexstr2bin('00ff'))", "00FF"),
    ("hexstr2bin('414a')", "AJ"),
    ("hexstr2bin('')", ""),
    ("int2hexstr(255)", "FF"),
    ("int2hexstr(-1)", "-1"),
    ("base64_encode('a?>')", "YT8+"),
    ("base64_encode('a?>~', 'urlsafe', 'no_padding')", "YT8-fg"),
    ("base64_decode('aGk=')", "hi"),
    ("base64_decode('YT8-fg', 'no_padding', 'urlsafe')", "a?>~"),
    ("json_value(message.payload, 'sensor.name')", "T-1"),
    ("json_value(message.payload, 'id')", "7"),
    ("json_value(message.payload, 'sensor.value')", "21.5"),
    ("json_value(message.payload, 'gone')", ""),
    ("json_value(message.payload, 'id.deeper')", ""),
    ("json_value('no json', 'a')", ""),
    (f"jwt_value('{TOKEN}', 'sub')", "bob"),
    (f"jwt_value('{TOKEN}', 'role.n')", "3"),
    ("hash('md5', 'a')", "0cc175b9c0f1b6a831c399e269772661"),
    ("hash('sha', 'a')", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
    ("strlen(hash('shake256', 'a'))", "64"),
    ("strlen(hash('blake2b', message.payload))", "128"),
    ("hash_to_range('dev-1', 5, 5)", "5"),
    ("hash_to_range('a', 0, 999)", str(int(SHA256_OF_A, 16) % 1000)),
    ("map_to_range('A', 1, 10)", "6"),
    ("map_to_range(12, 0, 4)", "2"),
    ("str_comp('a', 'b')", "lt"),
    ("str_comp(10, 9)", "lt"),
    ("str_comp('b', 'a')", "gt"),
    ("str_eq('a', 'a')", "true"),
    ("str_eq(1, '1')", "true"),
    ("str_neq('a', 'a')", "false"),
    ("str_neq('a', 'b')", "true"),
    ("str_lt('a', 'b')", "true"),
    ("str_lt('a', 'a')", "false"),
    ("str_lte('a', 'a')", "true"),
    ("str_lte('b', 'a')", "false"),
    ("str_gt('b', 'a')", "true"),
    ("str_gt(9, 10)", "true"),
    ("str_gte('a', 'a')", "true"),
    ("str_gte('a', 'b')", "false"),
    ("num_comp(1, 2)", "lt"),
    ("num_comp(2.5, 2.5)", "eq"),
    ("num_eq(1, 1.0)", "true"),
    ("num_eq(1, 2)", "false"),
    ("num_neq(1, 2)", "true"),
    ("num_neq(1, 1)", "false"),
    ("num_lt(-1, 0)", "true"),
    ("num_lt(2, 2)", "false"),
    ("num_lte(2, 2)", "true"),
    ("num_lte(3, 2)", "false"),
    ("num_gt(10, 9)", "true"),
    ("num_gt(message.qos, 1)", "false"),
    ("num_gte(2, 2)", "true"),
    ("num_gte(-1, 2)", "false"),
    ("getenv('ZONE')", "eu-1"),
    ("getenv('QUEUELAKE_VAR_ZONE')", "eu-1"),
    ("getenv('SECRET')", ""),
    ("timestamp_s()", "1790000001"),
    ("num_gt(timestamp_s(), 0)", "true"),
    ("timestamp_ms()", "1790000001999"),
    ("concat([timestamp_ms(), ''])", "1790000001999"),
]


@pytest.mark.parametrize(("expression", "expected"), EXAMPLES, ids=[e for e, _ in EXAMPLES])
def test_a_function_gives(expression: str, expected: str | list[str]) -> None:
    if isinstance(expected, list):
        value = parse_expression(expression)._root.evaluate(make_fields())
        assert value == expected
        return
    assert key_of(expression) == expected


def test_every_function_has_two_examples() -> None:
    for name in [*FUNCTIONS, *FORMS]:
        call = re.compile(rf"(?<![a-z0-9_]){name}\(")
        shown = sum(1 for expression, _ in EXAMPLES if call.search(expression))
        assert shown >= 2, f"{name}: {shown} of 2 examples"


# The argument is a variable, so that the mistake shows only when the message is there.
@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("lower(message.qos)", "lower() at column 1: a number where a text is needed"),
        ("concat(message.from)", "a text where a list is needed"),
        ("lower(json_value(message.payload, 'gone'))", "nothing where a text is needed"),
        ("lower(json_value(message.payload, 'tags'))", "a list where a text is needed"),
        ("upper(lower(hexstr2bin('ff')))", "lower() at column 7: bytes which are not UTF-8"),
        ("nth(message.from, ['a'])", "a text which is no number where an integer is needed"),
        ("nth(0, ['a'])", "place is 0, the first is 1"),
        ("substr(message.from, -1)", "start is -1, at least 0"),
        ("substr(message.from, 1, -1)", "length is -1, at least 0"),
        ("pad('a', 9, 'middle')", "no such side: 'middle'"),
        ("replace('a', 'a', 'b', 'some')", "no such option: 'some'"),
        ("find('a', 'a', 'all')", "no such option: 'all'"),
        ("split('a', 'a', 'trim')", "no such option: 'trim'"),
        ("tokens('a', 'a', 'crlf')", "no such option: 'crlf'"),
        ("base64_encode('a', 'padded')", "no such option: 'padded'"),
        ("base64_decode('aGk')", "base64_decode() at column 1"),
        ("base64_decode('aG+k', 'urlsafe')", "base64_decode() at column 1"),
        ("hexstr2bin('4')", "hexstr2bin() at column 1"),
        ("hexstr2bin('4 1')", "hexstr2bin() at column 1"),
        ("ascii('')", "an empty text has no first character"),
        (r"unescape('\q')", r"unknown escape '\q'"),
        (r"unescape('\xg')", r"unknown escape '\x'"),
        (r"unescape('\xD800')", "is no Unicode character"),
        (r"unescape('\xFFFFFFFFFFFFFFFF')", "is no Unicode character"),
        ("sprintf_s('~s', [])", "fewer values than directives"),
        ("sprintf_s('s', ['a'])", "more values than directives"),
        ("sprintf_s('~', [])", "no directive at place 0"),
        ("sprintf_s('~y', [1])", "no such directive: '~y'"),
        ("sprintf_s('~s', [1])", "a number where a text is needed"),
        ("sprintf_s('~b', ['1'])", "a text where an integer is needed"),
        ("sprintf_s('~.1b', [1])", "base 1, must be 2 to 36"),
        ("sprintf_s('~c', [55296])", "half of a surrogate pair"),
        ("sprintf_s('~.101f', [1])", "at most 100"),
        ("hash('md4', 'a')", "no such algorithm: 'md4'"),
        ("hash_to_range('', 1, 2)", "an empty text has no place in a range"),
        ("hash_to_range('a', 2, 1)", "the range from 2 to 1 is empty"),
        ("map_to_range('', 1, 2)", "an empty text has no place in a range"),
        ("json_value(message.payload, '')", "the path is empty"),
        ("jwt_value('a.b', 'c')", "a token has 3 parts, this has 2"),
        ("jwt_value('a.b.c', 'c')", "jwt_value() at column 1"),
        ("topic_join('', 'a')", "the parent topic is empty"),
        ("topic_join(['a', json_value('{}', 'x')])", "nothing where a topic level is needed"),
        ("topic_match('a', 'a/#/b')", "'#' must stand alone"),
        ("regex_replace('a', 'a', '\\1')", "group 1 in the replacement, the pattern has 0"),
        ("regex_match('a', concat(['(', '']))", "is not an RE2 expression"),
        ("num_eq(message.from, 1)", "a text where a number is needed"),
        ("not(message.from)", "not true or false"),
        ("rand_int(0)", "the largest number is 0, at least 1"),
        ("rand_str(0)", "length is 0, must be 1 to 1024"),
        ("rand_str(1025)", "length is 1025, must be 1 to 1024"),
        ("any_to_str([hexstr2bin('ff')])", "a list with bytes which are not UTF-8"),
        ("tokens(message.topic, '/')", "the key is a list, must be a text or a number"),
        ("json_value(message.payload, 'sensor')", "the key is an object"),
        ("hexstr2bin('ff')", "the key is bytes which are not UTF-8"),
    ],
)
def test_a_function_refuses(expression: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        key_of(expression)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("concat([message.payload, message.payload])", "1400000 characters, at most 1048576"),
        ("pad('a', 1048577)", "1048577 characters, at most 1048576"),
        ("pad('a', 1000000, 'leading', 'ab')", "characters, at most 1048576"),
        ("replace(message.payload, 'a', 'bbb')", "2100000 characters, at most 1048576"),
        ("replace(message.payload, 'a', message.payload, 'leading')", "at most 1048576"),
        ("join_to_string(message.payload, ['', '', ''])", "at most 1048576"),
        ("any_to_str([message.payload, message.payload])", "at most 1048576"),
        ("bin2hexstr(message.payload)", "1400000 characters, at most 1048576"),
        ("split(message.payload, 'a')", "a list of 700000 items, at most 10000"),
        ("tokens(message.payload, 'xa')", "a list of 700000 items, at most 10000"),
        ("topic_split(replace(message.payload, 'a', '/'))", "700000 items, at most 10000"),
        ("regex_replace(message.payload, 'a', 'b')", "more than 1000 matches"),
        ("regex_match('a', message.payload)", "a pattern of 700000 characters, at most 1024"),
        ("regex_replace('a', 'a', message.payload)", "a replacement of 700000 characters"),
        ("trim(message.payload, message.payload)", "700000 characters, at most 256"),
        ("find('a', message.payload, 'trailing')", "700000 characters, at most 256"),
    ],
)
def test_texts_and_lists_have_limits(expression: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        key_of(expression, make_fields(payload=b"a" * 700_000))
    assert problem in str(caught.value)


def test_a_literal_no_function_takes_is_refused_with_its_column() -> None:
    with pytest.raises(BadExpressionError) as caught:
        parse_expression("concat(['a', lower(1)])")
    assert caught.value.column == 20
    assert caught.value.problem == "a number where a text is needed"


def test_a_pattern_in_the_expression_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = parse_expression("nth(1, regex_extract(message.from, '-([0-9]+)'))")
    monkeypatch.setattr("re2.compile", None)
    assert expression.evaluate(make_fields()) == b"1"


def test_tokens_without_line_ends() -> None:
    fields = make_fields(payload=b"a b\r\nc")
    assert key_of("join_to_string('+', tokens(message.payload, ' ', 'nocrlf'))", fields) == "a+b+c"


def test_a_range_is_kept_below_zero_too() -> None:
    assert key_of("map_to_range(-7, 1, 5)") == "4"


def test_a_value_of_the_environment_need_not_be_text() -> None:
    fields = make_fields(environment={"QUEUELAKE_VAR_RAW": "\udcff"})
    assert key_of("bin2hexstr(getenv('RAW'))", fields) == "FF"


def test_a_nested_document_has_no_value_when_it_is_too_deep() -> None:
    fields = make_fields(payload=b'{"a":' * 50_000)
    assert key_of("json_value(message.payload, 'a')", fields) == ""


def test_numbers_have_at_most_ten_decimals() -> None:
    assert key_of("0.12345678901234") == "0.123456789"
    assert key_of("2.0") == "2.0"
    assert key_of("1.5e3") == "1500.0"
    assert key_of("-12") == "-12"
