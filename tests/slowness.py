"""Searches for texts that are slow to read: ``python -m tests.slowness --seconds 180 --reader shell --seed 1``.

Each reader of text from outside gets texts made of its own words. What costs most CPU time is kept, changed,
repeated, nested and grown, up to the reader's longest text. Prints the slowest text that was found for each
reader, and fails if one of up to 64,000 characters costs more than half a second. ``--keep`` writes the slowest
texts into a folder.

Seconds here are CPU time: they tell where to look. What is found is mended by a bound on counted work, and the
tests judge that count (tests/agents/test_slow_texts.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from council.agents.codemind import CodeMind
from council.agents.lite import Lite
from council.agents.mind import Case, Stream
from council.agents.prime import Prime
from council.agents.prompting import summary as summarizer
from council.agents.prompting.special_tokens import without_specials
from council.agents.prompting.tokens import ESTIMATE, _counting
from council.agents.scan import constants, datafiles, hidden, lines, removed, shell, shell_finder, sql
from council.agents.scan.action import Argument, read_action
from council.agents.scan.change import read_changes
from council.agents.scan.compare import compare
from council.agents.scan.linters import lint
from council.agents.scan.own import FILE_BYTES_MAX, SILENCES, own_of
from council.agents.scan.pieces import pieces_of
from council.agents.scan.ruleset import OWN, RuleError, files_of, read
from council.agents.scan.scan import scan
from council.agents.scan.secrets import find_private
from council.agents.scan.shell import SCRIPT_CHARS_MAX
from council.agents.scan.spelling import spelled
from council.agents.scan.texts import written
from council.agents.scan.tools import CPU_SECONDS_MAX
from council.agents.static import stakes
from council.agents.static.verdict import observed
from council.protocol import values
from council.protocol.answer import find_json, mangle, markers
from council.protocol.answer import read as control
from council.protocol.envelope import BODY_CHARS_MAX, SUMMARY_CHARS_MAX
from council.protocol.errors import CouncilError

SECONDS_MAX = 0.5  # for a text of up to so many characters:
CHARS_JUDGED = 64_000
LINTED_SECONDS_MAX = CPU_SECONDS_MAX + 2.0  # with ruff, a process that has a limit of its own
GROWN_SECONDS_MAX = 3.0  # a text that costs more is not grown any further
NONCE = "0123456789abcdef"  # of the markers that a text may hold
KEPT = 6  # of the slowest texts of each size


def case_of(text: str, command: str | None = None, summary: str = "Review this") -> Case:
    action = None if command is None else {"tool": "shell", "args": {"command": command}}
    return Case("proposal", "client", summary, text, action)


def as_diff(text: str, path: str, *, whole: bool = False) -> str:
    """The text as the hunk of a file: lines keep their minus or blank, and all others are added."""
    lines = [line if line[:1] in ("-", " ") else "+" + line.removeprefix("+") for line in text.split("\n")]
    old, new = (sum(line[0] in tags for line in lines) for tags in ("- ", "+ "))
    start = 1 if whole else 40
    end = "\\ No newline at end of file\n" if whole else ""
    head = f"--- a/{path}\n+++ b/{path}\n@@ -{start},{old} +{start},{new} @@\n"
    return head + "".join(line + "\n" for line in lines) + end


def python(text: str, *, whole: bool) -> None:
    """What is done with Python but for the analyzers, which are processes of their own."""
    changes = read_changes(as_diff(text, "app.py", whole=whole)).files
    pieces = pieces_of(changes)
    spelled(pieces)
    removed.findings(changes, pieces)


def taken_away(text: str, path: str) -> None:
    """What a change that holds the text takes away, but for syntax errors, which ruff confirms."""
    changes = read_changes(as_diff(text, path)).files
    removed.findings(changes, pieces_of(changes))


def in_file(text: str, path: str) -> None:
    list(shell_finder.in_lines(path, list(enumerate(text.split("\n"), 1))))


def in_language(text: str, path: str) -> None:
    pieces = spelled(pieces_of([written(Argument("content", text, path))]))
    rules = [rule for file in files_of(OWN / "lines") for rule in read(file)]
    compare(lines.matches(pieces, rules), pieces)


def marked(text: str) -> None:
    with contextlib.suppress(CouncilError):
        markers.read_verification(markers.parse(text, nonce=NONCE))
        markers.check_nonce(NONCE, text)


def counted(text: str) -> None:
    for tokenizer in (ESTIMATE, "o200k_base"):
        _counting(tokenizer)(text)  # behind the cache


def notebook(text: str) -> str:
    lines = [line + "\n" for line in text.split("\n")]
    return json.dumps({"cells": [{"cell_type": "code", "source": lines}]}, indent=1)


def forgiving(read: Callable[[str], object]) -> Callable[[str], object]:
    def reader(text: str) -> None:
        with contextlib.suppress(CouncilError):
            read(text)

    return reader


def own_rules(text: str) -> None:
    """What a user's file of rules, of lines or of code, and of silences amounts to."""
    for name in ("a.yml", SILENCES):
        with contextlib.suppress(RuleError):
            own_of([(name, text)])


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader of text from outside, the words it knows, and the longest text it is given."""

    read: Callable[[str], object]
    words: tuple[str, ...]
    chars_max: int = BODY_CHARS_MAX
    seconds_max: float = SECONDS_MAX


def said(text: str) -> tuple[str, ...]:
    r"""The words of a dictionary, one between each two blanks; ``\n``, ``\t``, ``\s`` are line feed, tab, space."""
    plain = {"n": "\n", "t": "\t", "s": " "}
    return tuple(re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), word) for word in text.split())


_SHELL = said(
    r"a | && ; ( ) { } $( ` \" ' ' << <<EOF\n EOF\n \\\n ${ } [[ ]] if\s then\s fi\n for\sx\sin\s do\n done\n "
    r"case\sa\sin\n esac\n ;; & > 2>&1 # rm\s-rf\s/ sh\s-c\s' eval\s echo\s xargs\s ssh\sh\s sudo\s $A A= "
    r"A=$A$A\n f(){\s !\s ! (( )) <( <<< $(( * ? = + - / , . : ~ @ % ^ \n \s \\ 1 X[ ] $'x' function\sf\s "
    r"coproc\s find\s.\s-exec\s -c\s curl\su|sh psql\s-c\s"
)
_PYTHON = said(
    r"a ( ) [ ] { } : , . = + - * ** ; \" ' \"\"\" ''' # \\\n \n \n\s\s\s\s \n\s\n \n-\s\s\s\s \n- lambda: "
    r"if\sa:\n else: def\sf(a): class\sC: return\s raise\sE assert\s for\si\sin\s while\s1: try: except: "
    r"not\s and\s or\s in\s is\s f\"{a}\" eval(a) os.system(a) subprocess.run(a,shell=True) pickle.loads(a) "
    r"yaml.load(a) a=a+b a+=a.format(a) execute(\"select\s\"+a) "
    r"if\snot\suser.is_admin:\n\s\sraise\sPermissionError @login_required\n import\sa\n from\sa\simport\sb\n "
    r"a.append(a) verify=False token=\"abcdef\" 1 -1 ~ @ := async\s await\s yield\s match\sa: case\s_: "
    r"with\sa:"
)
_DIFF = said(
    r"diff\s--git\sa/x\sb/x\n ---\sa/x\n +++\sb/x\n @@\s-1\s+1\s@@\n @@\s-1,3\s+1,4\s@@\n +a\n -a\n \sa\n \n "
    r"```\n ```diff\n ~~~\n rename\sfrom\sa\n rename\sto\sb\n index\s1234567..89abcde\n "
    r"new\sfile\smode\s100644\n Binary\sfiles\sa\sand\sb\sdiffer\n GIT\sbinary\spatch\n literal\s1\n "
    r"\\\sNo\snewline\n \" \\303 \s ``` -- a \t +a @@ ---\s/dev/null\n"
)
_PRIVATE = said(
    r"-----BEGIN\sPRIVATE\sKEY----- AKIA ghp_ sk- xoxb- eyJ . eyJhbGciOi .eyJ :// : @ password= token:\s \" ' "
    r"= bearer\s basic\s curl\s -u\s a@b.c @ +1 555 - ( ) 4111 1111 DE89 \s \n a A 0 9 _ / \\n key= secret= "
    r"pwd=\" ssn pesel AccountKey= ya29. 123-45-6789 123.456.789-09 a.b.c <img https://u:p@h api_key ${ { } [ "
    r"] , ; abcdefgh XYZ12345 user:pass@"
)
_FOLDED = said(
    r"\"a\" 'b' ` ${A} f\" {A} + . % ( ) [ ] { } , A B = += : \n \s \" ' \\ \\x41 join( .join format( .format( "
    r"b64decode( atob( bytes.fromhex( \"%s%s\" [::-1] .replace( new\s []string{ 1 chr( # // /*"
)
_RULES = said(
    r"id:\sa-b\n -\s language:\spython\n rule:\s {pattern:\sa} any: all: [ ] { } , : ' \" \\ ? | > & * &a *a !a "
    r"<<:\s*a\n ---\n family:\sbug\n weight:\sask\n match:\s paths:\s ( (?: (a+)+ (a|a)* .* \\w+ {1,9} ) \n "
    r"\n\s\s message:\sNo.\n rule:\sa\nreason:\sb\n until:\s2026-01-01\n # a \t 1"
)
_HIDDEN = (
    *(
        "a",
        "\u0430",
        "\u202e",
        "\u200b",
        "\U000e0041",
        "\ufe0f",
        "\uff41",
        " ",
        "\n",
        "import ",
        "://",
        ".",
        "_",
        "привет",
    ),
)
_CODE = said(
    r"exec( system( eval( `#{a}` %x(#{a}) ${a} #{a} $_GET[ req.body process.argv \" ' ` \\ ( ) { } [ ] , ; + "
    r". = a b \n \s new\sFunction( getRuntime().exec( exec.Command(\"sh\",\"-c\", spawn(\"sh\",\"-c\", "
    r"rejectUnauthorized:false // # run:\s on:\spull_request_target\n ref:\s${{github.head_ref}} "
    r"${{\sgithub.event.issue.title\s}} -\srun:\s|\n curl\s-d\s a= K:\s${{\ssecrets.A\s}} ||\strue pytest\s "
    r"escapeshellarg( Sprintf( A_B:\s privileged:\strue"
)
_SQL = said(r"drop\s table\s delete\sfrom\s truncate\s a -- --\sdown /* */ ; ;\n \n \s * ' '' \" .")
_JSON = said(
    r"{ } [ ] \" : , { \"a\": 1 -1 1e9 1e400 null true \\u0041 \\ud800 \\ \"\": \n \s {\"a\":{ [[ ]] "
    r"{\"control_packet\": \"surface_response\": \"ballot\": {\"vote\":\"yes\" ```json\n ``` "
    r"\"mangle_updates\":[ \"memory_operations\":[ \"intent_classification\":{ \"confidence\":1 "
    r"task_status(/a,/b) {\"op\":\"note\",\"key\":\"a\",\"value\":\"b\"} a"
)
_YAML = said(
    r"a: -\s [ ] { } , & * &a *a ? | > ' \" # \n \s \n\s --- ... ! !!a % <<: \\ a :\s : - ?\s \t 1 {{ }} "
    r"\n-\s [[a]] a= = \"\"\" ''' 1979-01-01 . a.b={ {a= ,a= 0x 1_0 \"a\": null , {\" \":["
)
_TOML = (
    *_YAML,
    *said(r"a. b .a =1\n [a.a]\n [[a]]\n # it's x=[ {a.a=1},"),
    *('"a".', "'a'.", '"\\', '\\"', ".".join(["a"] * 19), "b" * 1_001),
)
_CELL = '"},{"cell_type":"code","source":'
_NOTEBOOK = (
    "a",
    r"\u0061b\n",
    r"\n",
    "1b",
    '","',
    '",\n"',
    '"],"x":["',
    _CELL + '"',
    _CELL + '["',
    r"\"",
    r"\\\\",
)
_PACKETS = (
    *('{"control_packet":{"mangle_updates":["', 'p(1).","', r'p(/a,\"b\").","', '"],"memory_operations":['),
    *('{"op":"note","key":"a","value":"b"},', '],"intent_classification":{"category":"/query"},', "}"),
    *(
        '"state_transitions":[',
        '"reasoning_trace":"',
        '"safety_gates":{',
        '},"surface_response":"a"}',
        "```json\n",
    ),
    *('"ballot":{"vote":"yes","reason":"a"},', '{"control_packet":{}}', '{"surface_response":"'),
)
_MANGLE = said(
    r"p( ) , /a \" ' ` \\ \\n \\x41 \\u{41} [ ] { } : 1 -1 .5 1.5e3 X _ # \n . :- Decl\s bound\s[ descr\s[ "
    r"fn:List( /string 99999999999999999999 \s p(1) a.b:c /a/b/c {/a:1} [1,2]"
)
_MARKS = said(
    rf"PLAN: EXECUTE: REFINE: EXECUTE[{NONCE}]: PLAN[{NONCE}]: VERIFY[{NONCE}]: [{NONCE}] \n \s a confidence=0.5 "
    r"success fail tool\s{ { } \" : \r \u2028 \u200b PL AN ** > - ` ``` SEED: E : [ ] 0123 EXECUTE:\sls "
    r"PLAN:\sa\n \t"
)
_PROSE = said(
    r"a b . ! ? \n \n\n \s Dr. e.g. 1. -\s #\s | ``` ~~~ \s\s\s\s > user:\s ( ) \" ' 。 ， 中 é \u0301 𝕏 "
    r"<|im_start|> <| |> the\s and\s if\s check\s then\s delete\s production\s `rm\s-rf\s/` ` turn\soff\s ,\s "
    r";\s http:// aaaa 1234567890 \\ \0"
)

READERS: dict[str, Reader] = {
    "shell": Reader(shell.read, _SHELL, SCRIPT_CHARS_MAX),
    "shell case": Reader(lambda text: scan(case_of("```sh\n" + text + "\n```\n", text)), _SHELL, 150_000),
    "diff": Reader(read_changes, _DIFF),
    "python": Reader(lambda text: python(text, whole=True), _PYTHON),
    "python hunk": Reader(lambda text: python(text, whole=False), _PYTHON),
    "removed": Reader(lambda text: taken_away(text, "app.py"), _PYTHON + _DIFF),
    "removed tests": Reader(lambda text: taken_away(text, "tests/app.test.js"), _CODE + _DIFF),
    "javascript": Reader(lambda text: in_language(text, "a.js"), _CODE),
    "ruby": Reader(lambda text: in_language(text, "a.rb"), _CODE),
    "workflow": Reader(lambda text: in_language(text, ".github/workflows/a.yml"), _CODE),
    "makefile": Reader(lambda text: in_file(text, "Makefile"), _SHELL),
    "dockerfile": Reader(lambda text: in_file(text, "Dockerfile"), (*_SHELL, "RUN ", '["', "CMD ", "--a ")),
    "workflow scripts": Reader(lambda text: in_file(text, ".github/workflows/a.yml"), _SHELL + _CODE),
    "python scripts": Reader(lambda text: in_file(text, "a.py"), _PYTHON),
    "package scripts": Reader(lambda text: in_file(text, "package.json"), _JSON),
    "sql scripts": Reader(lambda text: in_file(text, "a.sql"), _SQL),
    "prose scripts": Reader(lambda text: list(shell_finder.commands_in_prose(text)), _PROSE + _SHELL),
    "secrets": Reader(find_private, _PRIVATE),
    "constants": Reader(lambda text: constants.fold([written(Argument("content", text, "a.py"))]), _FOLDED),
    "hidden": Reader(lambda text: hidden.findings([written(Argument("content", text, "a.py"))]), _HIDDEN),
    "rules": Reader(own_rules, _RULES, FILE_BYTES_MAX),
    "policy": Reader(lambda text: scan(case_of(text)), _DIFF + _PRIVATE + _SHELL + _PROSE),
    "stream": Reader(
        lambda text: observed(case_of(""), Stream("lite", "plan", text, True)), _PROSE + _SHELL, 2**20
    ),
    "stakes": Reader(
        lambda text: stakes.weigh(case_of("", text, text[:SUMMARY_CHARS_MAX]), has_change=False),
        _PROSE + _SHELL,
    ),
    "actions": Reader(
        lambda text: read_action(
            {"tool": "bash", "args": {"command": text, "path": text[:999], text[:99]: [text]}}
        ),
        _SHELL + _DIFF,
    ),
    "sql": Reader(lambda text: sql.findings(text, "here"), _SQL),
    "json file": Reader(
        lambda text: datafiles.syntax_fault("a.json", "[" + text + "1]"),
        (*_JSON, *_YAML, "1,", "[],", "{},", '"\\u0061b\\n",', "9" * 4_300 + ","),
    ),
    "yaml file": Reader(
        lambda text: datafiles.syntax_fault("a.yml", text),
        (*_YAML, "%TAG !a! b\n", "- - ", "a: b\n", "[[a]]: "),
    ),
    "toml file": Reader(lambda text: datafiles.syntax_fault("a.toml", text), _TOML),
    "notebook file": Reader(
        lambda text: datafiles.code_in("a.ipynb", '{"cells":[{' + _CELL[4:] + '"' + text + '"}]}'), _NOTEBOOK
    ),
    "notebook": Reader(lambda text: datafiles.code_in("a.ipynb", notebook(text)), _PYTHON),
    "linters": Reader(
        lambda text: lint([text, text + "\n"], timeout_s=60),
        _PYTHON,
        seconds_max=LINTED_SECONDS_MAX,
    ),
    "json": Reader(forgiving(lambda text: values.read_object(text, field="text")), _JSON, 2**20),
    "control": Reader(forgiving(control.read), _JSON + _MANGLE + _PACKETS, 2**20),
    "objects": Reader(
        lambda text: find_json.find_objects(text, lambda value: True, control.DEPTH_MAX), _JSON, 2**20
    ),
    "mangle": Reader(forgiving(mangle.parse), _MANGLE, mangle.ATOM_CHARS_MAX),
    "markers": Reader(marked, _MARKS, markers.OUTPUT_CHARS_MAX),
    "specials": Reader(without_specials, _PROSE, 2**20),
    "tokens": Reader(counted, _PROSE, 2**20),
    "summary": Reader(
        lambda text: summarizer.summarize(text, 100, count=lambda piece: len(piece) // 4, way="tf-idf"),
        _PROSE,
        400_000,
    ),
    "prime": Reader(lambda text: Prime().review(case_of(text)), _DIFF + _PYTHON + _SHELL),
    "lite": Reader(lambda text: Lite().review(case_of(text)), _DIFF + _PRIVATE + _CODE + _SHELL),
    "codemind": Reader(
        lambda text: CodeMind().review(case_of(text)), _DIFF + _PYTHON + _YAML, seconds_max=LINTED_SECONDS_MAX
    ),
}


def spent() -> float:
    """The CPU seconds of this process, and of those that it started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost(reader: Reader, text: str) -> float:
    before = spent()
    reader.read(text)
    return spent() - before


def longest_stretch(reader: Reader, text: str) -> float:
    """The most CPU time for which no other thread was let run: what one call of C takes, as a rule."""
    last, worst, is_done = time.process_time(), 0.0, threading.Event()

    def tick() -> None:
        nonlocal last, worst
        while not is_done.wait(0.001):
            now = time.process_time()
            worst, last = max(worst, now - last), now

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        reader.read(text)
    finally:
        is_done.set()
        thread.join()
    return worst


@dataclass
class Search:
    """One reader's search: the slowest texts by their size."""

    reader: Reader
    random: random.Random
    pools: dict[int, list[tuple[float, str]]] = field(default_factory=dict)
    runs: int = 0

    def sizes(self) -> list[int]:
        most = self.reader.chars_max
        return [*(size for size in (1_000, 4_000, 16_000, CHARS_JUDGED) if size < most), most]

    def run(self, seconds: float) -> None:
        end = spent() + seconds
        for word in self.reader.words:
            self.try_one((word * 4_000)[:4_000], 4_000)
        while spent() < end:
            size = (
                self.random.choice(self.sizes()[:3])
                if self.random.random() < 0.9
                else self.random.choice(self.sizes())
            )
            pool = self.pools.get(size)
            if not pool:
                self.try_one(self.grown("".join(self.random.choices(self.reader.words, k=5)), size), size)
                continue
            seconds_of, text = self.random.choice(pool)
            if seconds_of > GROWN_SECONDS_MAX:
                text = text[: len(text) // 2]
            if self.try_one(self.changed(text, size), size):
                self.grow(size)

    def grow(self, size: int) -> None:
        """The slowest text of a size, larger, as long as that makes it slower."""
        larger = [each for each in self.sizes() if each > size]
        text = max(self.pools[size])[1]
        for each in larger:
            if max(self.pools[size])[0] > GROWN_SECONDS_MAX or not self.try_one(self.grown(text, each), each):
                return
            text, size = max(self.pools[each])[1], each

    def grown(self, text: str, size: int) -> str:
        text = text or "a"
        at, end = sorted(self.random.choices(range(len(text) + 1), k=2))
        match self.random.randrange(4):
            case 0:  # a part of it many times
                piece = text[at:end] or text
                return text[:at] + piece * ((size - len(text)) // len(piece) + 1) + text[at:]
            case 1:  # nested in itself
                half = text[: len(text) // 2], text[len(text) // 2 :]
                times = size // len(text) + 1
                return half[0] * times + half[1] * times
            case 2:
                return (text + "\n") * (size // len(text) + 1)
            case _:
                return text * (size // len(text) + 1)

    def changed(self, text: str, size: int) -> str:
        pick = self.random
        for _ in range(pick.randint(1, 4)):
            at, end = sorted(pick.choices(range(len(text) + 1), k=2))
            word = pick.choice(self.reader.words)
            match pick.randrange(8):
                case 0:
                    text = text[:at] + word + text[at:]
                case 1:
                    text = text[:at] + word * pick.choice((3, 30, 300)) + text[at:]
                case 2:
                    text = text[:at] + text[end:]
                case 3:
                    text = text[:at] + text[at:end] * 2 + text[end:]
                case 4:
                    other = max(pick.choice(list(self.pools.values())))[1]
                    text = text[:at] + other[: pick.randrange(len(other) + 1)] + text[end:]
                case 5:
                    step = pick.choice(self.reader.words)
                    text = text.replace(step, word, pick.choice((1, 10, -1)))
                case 6:
                    piece = text[at : at + pick.randint(1, 40)]
                    text = self.grown(piece + word, size)
                case _:
                    text = word.join(text[i : i + 50] for i in range(0, min(len(text), size), 50))
        return text

    def try_one(self, text: str, size: int) -> bool:
        """Whether the text, cut to the size, is among the slowest of it."""
        text = text[: min(size, self.reader.chars_max)]
        pool = self.pools.setdefault(size, [])
        self.runs += 1
        seconds = cost(self.reader, text)
        if len(pool) >= KEPT and seconds <= min(pool)[0]:
            return False
        seconds = min(seconds, cost(self.reader, text)) if seconds < GROWN_SECONDS_MAX else seconds
        if any(text == known for _, known in pool) or (len(pool) >= KEPT and seconds <= min(pool)[0]):
            return False
        pool.append((seconds, text))
        pool.sort(reverse=True)
        del pool[KEPT:]
        return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slowness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="CPU seconds to search for, each reader")
    parser.add_argument("--reader", choices=sorted(READERS), action="append", help="this one alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the slowest texts")
    given = parser.parse_args(arguments)
    slow = []
    for name in given.reader or READERS:
        search = Search(READERS[name], random.Random(f"{given.seed} {name}"))
        search.run(given.seconds)
        told = []
        for size, pool in sorted(search.pools.items()):
            seconds, text = pool[0]
            told.append(f"{size:,}: {seconds:.2f} s")
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                place = given.keep / f"{name.replace(' ', '-')}-{size}.txt"
                place.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        judged = [pool[0] for size, pool in search.pools.items() if size <= CHARS_JUDGED]
        worst = min(max(judged)[0], cost(search.reader, max(judged)[1]))
        longest = max(max(pool) for pool in search.pools.values())[1]
        stretch = longest_stretch(search.reader, longest)
        print(
            f"{name}: {search.runs:,} runs; {'; '.join(told)}; held for {stretch:.3f} s",
            flush=True,
        )
        if worst > search.reader.seconds_max:
            slow.append(name)
    if slow:
        print(f"too many CPU seconds for {CHARS_JUDGED:,} characters: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
