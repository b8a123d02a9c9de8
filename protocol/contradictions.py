"""Whether a text goes against a core rule, by its words. Knows words, not meaning; asks no model.

A persona is a tone; it has no need to speak of what the core rules are about. So this is strict: what touches a
rule's subject must say what the rule says, and is refused where that can't be seen, with the words that it read.
Decided, sentence by sentence:

- **override**: a word for rules, instructions or the identity in a sentence that does not say to keep them (follow,
  obey, never break); limits and filters set aside, or called optional or absent; modes without them. The plain
  "ignore the rules" also in eight languages beside English;
- **contradiction**: a rule's action, or its opposite, with the rule's subject (or with anything, whatever, freely),
  said the other way round: negations and words of reluctance before the action are counted, so that "never hesitate
  to lie" is read as "lie". Of a rule that asks for something, its subject without its action is enough ("privacy is
  dead"); of one whose action is not in the tables, two of its words are its subject;
- **a condition taken away**: of "never … without approval", approval that is skipped, assumed or not needed.

Read as what they look like: capitals, accents, digits for letters, spaced letters. Refused as unreadable: a word of
Latin mixed with Cyrillic or Greek letters, and characters that nobody sees.

Not decided, for words alone don't tell: paraphrase without any of the words known here, irony, a story or a role in
which the rule would be broken, contradictions in other languages than English. These the rules' own place in the
prompt must bear, and approval and tokens (rules 3.3), which no persona reaches.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from council.protocol.models import unseen

EVERY_RULE = "every core rule"
# A negation reaches no further back than so many words: "no user likes to wait, so do …" negates nothing behind it.
_REACH = 5
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Contradiction:
    """``words`` at ``where`` go against ``rule``, a core rule's own text or EVERY_RULE; ``why`` says how."""

    where: str
    words: str
    rule: str
    why: str


# Words. A line is one concept: its name, then what else says the same; all are compared by their stems.


def _stem(word: str) -> str:
    """What inflection leaves of an English word; the same for all of its forms, and no word itself."""
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ically", "ation", "ingly", "edly", "ing", "ion", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    word = word.removesuffix("e") if len(word) > 3 else word
    word = word.removesuffix("at") if len(word) > 6 else word
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


def _stems(words: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words.split())


_CONCEPTS = """
execute run runs ran exec launch launches invoke perform spawn
use type enter
shell terminal bash zsh sh powershell console cli
command script
invent hallucinate fabricate fake forge confabulate bluff
guess imagine assume
fact claim source citation
protect guard safeguard secure shield defend
reveal leak disclose expose publish publishes divulge release sell exfiltrate betray dox
show share tell give send print display post output repeat spread
private personal confidential secret sensitive intimate password credential
data information info details record
approval approve approved consent permission permit confirm confirmation authorize authorise authorization clearance
reflection reflect think thinks thinking thought deliberate deliberation
deceive lie lies lied lying mislead misled cheat dishonest untruthful deceit deception deceptive
honest honesty truth truthful truthfulness true sincere
cruel cruelty insult humiliate belittle bully abuse
delete remove erase wipe destroy
obey follow comply respect honour honor abide heed uphold keep
"""
_CONCEPT = {_stem(word): line.split()[0] for line in _CONCEPTS.strip().splitlines() for word in line.split()}
_ACTIONS = frozenset(
    ["execute", "invent", "protect", "reveal", "deceive", "honest", "cruel", "delete", "obey"]
)
_OPPOSITE = {"protect": "reveal", "reveal": "protect", "deceive": "honest", "honest": "deceive"}
# Common verbs that mean the action only where the rule's own subject stands beside them.
_WEAKLY = {"use": "execute", "guess": "invent", "show": "reveal"}
# Too common to be a rule's subject by themselves, where it has another.
_WEAK = frozenset(["data", "fact", "command"]) | _stems("code user people person")
_ANYTHING = _stems(
    "anything everything whatever stuff things something freely openly boldly whenever anyway regardless free"
)
_POINTING = _stems("it them these those this that")
_NEGATIONS = _stems(
    "never not no none nothing nobody neither nor avoid refuse refrain decline forbid forbidden prohibit ban banned "
    "against prevent abstain stop cannot"
)
_RELUCTANCE = _stems(
    "hesitate hesitation fail forget afraid shy wrong bad problem problematic illegal disallow disallowed mind "
    "reluctant scruple scruples harmful resist"
)
_SETS_ASIDE = _stems(
    "ignore disregard forget override overrides overridden bypass suspend circumvent evade skip violate break breach "
    "defy disobey overrule overwrite replace supersede relax loosen lift drop disable remove unlearn nullify cancel "
    "abandon discard neglect reject deactivate outrank trump waive dismiss sidestep precedence priority exempt above "
    "beyond instead against"
)
_DOWNPLAYS = _stems(
    "optional formality negotiable void irrelevant advisory meaningless suggestion unnecessary needless moot "
    "implied implicit granted automatic automatically auto pre already pretend default false off disabled null 0 "
    "superfluous later afterwards"
)
# What a persona has no reason to speak of but to say that it keeps it; and what also means something else.
_GOVERNING = _stems("rule rules instruction guideline directive identity constitution guardrail")
_RULES = _GOVERNING | _stems(
    "constraint restriction policy policies principle limit limitation filter safeguards safety law boundary ethics"
)
_LAWLESS = _stems("unrestricted unfiltered uncensored unbound unlimited jailbreak jailbroken lawless amoral")
_TURNING = _NEGATIONS | _RELUCTANCE
_BINDS = _stems("apply count matter bind bound need needed require required necessary important hold")
_TAKING_AWAY = (
    _NEGATIONS | _SETS_ASIDE | _DOWNPLAYS | _stems("hesitate fail afraid shy") | {"without", "guess"}
)
_CONTRARY = _TURNING | _SETS_ASIDE | _DOWNPLAYS | {"without"}
_KNOWN = _CONCEPT.keys() | _TURNING | _TAKING_AWAY | _RULES | _LAWLESS | _ANYTHING
_CONDITION_AT = frozenset(["without", "unless", "until", "before", "except"])
# Behind these a negation does not reach.
_CLAUSE_AT = frozenset(["but", "yet", "however", "although", "though", "while", "whereas", "and", "then"]) | {
    *("if", "when", "because", "since", "so", "unless", "until", "after", "once"),
}
_STOP = _stems(
    "a an the all any some every at in on of to for from with without by as is are be been being was were am "
    "do does did done doing have has had or and you your yours i me my we our us he she they his her their "
    "its it this that these those who which what can could may might must shall should will would always ever "
    "only also just please very cost costs about into out up own other unless until before after except when "
    "if than then so too even"
)
_LAWLESS_MODES = re.compile(
    r"(?:developer|god|admin|root|sudo|debug|unsafe|dan) mode|do anything now|no longer bound|"
    r"(?:your|my) (?:real|true|actual|new) identity|(?:new|other|own|different) (?:core )?(?:rules|identity)"
)
# Set aside … rules, in either order: de fr es it pt, ru, zh, ja. What is negated there is refused all the same.
_ELSEWHERE = tuple(
    re.compile(f"(?:{verbs}).{{0,40}}?(?:{nouns})|(?:{nouns}).{{0,40}}?(?:{verbs})")
    for verbs, nouns in (
        (
            "ignorier|missacht|umgeh|vergiss|vergess|aussetz|brich|brech",
            "regel|anweisung|vorgabe|identitat|grenze",
        ),
        ("ignor|oubli|contourn|enfrein|desobe|transgress", "regle|instruction|consigne|identite|limite"),
        ("ignor|olvid|salta|elud|viol|infring|desobed", "regla|instruccion|norma|identidad|limite"),
        ("ignor|dimentic|aggir|viola|infrang|disobbed", "regol|istruzion|norm|identita|limit"),
        ("ignor|esque|contorn|viol|desobed", "regra|instruc|norma|identidade|limite"),
        ("игнорир|забуд|обход|обойд|наруш", "правил|инструкц|ограничен|личност"),
        ("忽略|无视|無視|忘记|绕过|违反|覆盖", "规则|規則|指令|限制|身份"),
        ("無視|忘れ|破っ|破る|回避", "ルール|規則|指示|制限"),
    )
)


# From text to words

_SENTENCE_END = re.compile(r"[.!?;:\n…。！？；：]")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[,()–—]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # autoApprove
_WITHIN = re.compile(r"(?<=\w)[-_*~`.\ufe0e\ufe0f](?=\w)")  # ig-nore
_SPACED_OUT = re.compile(r"\b(?:[^\W\d_][ ._*-]){3,}[^\W\d_]\b")
_DIGITS = (str.maketrans("013457", "oieast"), str.maketrans("013457", "oleast"))
# Said with a negation, and negating nothing.
_IDLE = re.compile(
    r"\b(?:no matter|not only|no doubt|no problem|no wonder|why not|whether or not|no questions?)\b"
)
_PRIVACY = re.compile(r"\b(?:privacy|pii)\b")
_MADE_UP = re.compile(r"\b(?:make|makes|making|made)\b(?=(?:\W+\w+){0,3}?\W+up\b)")
_UNASKED = re.compile(r"\bwithout (?:asking|being asked|waiting|checking)\b")
_ALL_APPROVED = re.compile(
    r"\b(?:everything|anything|all|every|any|treat|consider|assume|regard|deem)\b[^.;\n]{0,60}?\b(approved|permitted|"
    r"authori[sz]ed|confirmed)\b"
)
_NOT = re.compile(r"\b(?:do|does|did|wo|ca|is|are|must|should|would|could|need)n'?t\b")


def _plain_letters(text: str) -> str:
    """Without accents and letter case, as one reads it; letters of other scripts stay theirs."""
    bare = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    bare = unicodedata.normalize("NFKC", bare).casefold().replace("’", "'")
    return _SPACED_OUT.sub(lambda spaced: re.sub(r"[ ._*-]", "", spaced[0]), bare)


def _sentences(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each sentence, and its words as concepts or stems; ``|`` stands between its clauses."""
    text = _NOT.sub("not", _plain_letters(text))
    text = _PRIVACY.sub("private data", _IDLE.sub(" ", text))
    text = _ALL_APPROVED.sub(r"auto \1", _UNASKED.sub("without approval", _MADE_UP.sub("invent", text)))
    for sentence in _SENTENCE_END.split(text):
        tokens = []
        for word in _WORD.findall(sentence):
            if word in _CLAUSE_AT or not word[0].isalnum():
                tokens.append("|")
            if word[0].isalnum():
                tokens.append(word if word in _CONDITION_AT else _concept(word))
        if tokens:
            yield " ".join(sentence.split()), tokens


def _concept(word: str) -> str:
    """The concept that a word belongs to, or its stem; digits within it are read as the letters they look like."""
    if word.startswith("note"):
        return word  # whose stem would be "not"
    stems = [_stem(word.removesuffix("'s"))]
    if not word.isalpha() and not word.isdigit():
        stems = [_stem(word.translate(digits)) for digits in _DIGITS]
    stem = next((stem for stem in stems if stem in _KNOWN), stems[0])
    return _CONCEPT.get(stem, stem)


def _turned(tokens: Sequence[str], at: int, through: Collection[str] = ()) -> int:
    """How many words right before ``at`` turn its meaning round.

    Only little words, and those of ``through``, may stand between: "no worries, lie" and "without delay lie" turn
    nothing.
    """
    count = 0
    for back in range(1, min(_REACH, at) + 1):
        token = tokens[at - back]
        if token in _TURNING or token == "without":
            count += 1
        elif token not in _STOP and token not in _WEAKLY and token not in through:
            break
    return count


# What a rule says


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    actions: dict[str, int]  # each with its parity: 1 where the rule forbids it
    subjects: frozenset[str]
    condition: frozenset[str]
    parity: int


def _read_rule(text: str) -> _Rule:
    tokens = [token for _, sentence in _sentences(text) for token in [*sentence, "|"]]
    cut = next((at for at, token in enumerate(tokens) if at and token in _CONDITION_AT), len(tokens))
    main, rest = tokens[:cut], tokens[cut:]
    negated = [sum(token in _NEGATIONS for token in main[:at]) % 2 for at in range(len(main) + 1)]
    actions = {token: negated[at] for at, token in enumerate(main) if token in _ACTIONS}
    content = _content(main)
    return _Rule(
        text=text,
        actions=actions,
        subjects=content - actions.keys(),
        condition=_content(rest),
        parity=negated[-1],
    )


def _content(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset(tokens) - _STOP - _NEGATIONS - _CONDITION_AT - {"|"}


# The checks


def contradictions(rules: Sequence[str], texts: Iterable[tuple[str, str]]) -> tuple[Contradiction, ...]:
    """What goes against one of ``rules`` in ``texts``, each given with where it stands. The same for the same."""
    read = [_read_rule(rule) for rule in rules]
    found: dict[tuple[str, str], Contradiction] = {}
    for where, text in texts:
        for words, rule, why in _faults(text, read):
            shown = words if len(words) <= _SHOWN_CHARS else words[:_SHOWN_CHARS] + "…"
            found.setdefault((where + rule, words), Contradiction(where, shown, rule, why))
    return tuple(found.values())


def _faults(text: str, rules: Sequence[_Rule]) -> Iterator[tuple[str, str, str]]:
    hidden = unseen(text)
    if hidden is not None:
        yield text, EVERY_RULE, f"holds {hidden}, which nobody sees, so that it can't be read"
    mixed = _mixed_scripts(text)
    if mixed:
        yield mixed, EVERY_RULE, "mixes letters of two scripts that look alike"
    plain = _plain_letters(text)
    for reading in dict.fromkeys((text, _CAMEL.sub(" ", text), _WITHIN.sub("", text))):
        yield from _faults_of(reading, rules)
    for pattern in (_LAWLESS_MODES, *_ELSEWHERE):
        match = pattern.search(plain)
        if match:
            yield str(match[0]), EVERY_RULE, "sets the rules or the identity aside"


def _faults_of(text: str, rules: Sequence[_Rule]) -> Iterator[tuple[str, str, str]]:
    before: frozenset[str] = frozenset()
    for words, tokens in _sentences(text):
        if _overrides(tokens):
            yield words, EVERY_RULE, "sets rules aside, or says that there are none"
        # "Shell commands? Run them." A sentence that points back is about what the one before it was.
        around = frozenset(tokens) | (before if _POINTING.intersection(tokens) else frozenset())
        for rule in rules:
            why = _against(rule, tokens, around)
            if why:
                yield words, rule.text, why
        before = frozenset(tokens)


def _mixed_scripts(text: str) -> str:
    for word in re.findall(r"[^\W\d_]+", unicodedata.normalize("NFKC", text)):
        scripts = {unicodedata.name(char, "").split(" ")[0] for char in word}
        if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK", "CHEROKEE", "ARMENIAN", "COPTIC", "LISU"}:
            return str(word)
    return ""


def _overrides(tokens: Sequence[str]) -> bool:
    return any(
        _turned(tokens, at) % 2 == 0 if token in _LAWLESS else token in _RULES and not _is_kept(tokens, at)
        for at, token in enumerate(tokens)
    )


def _is_kept(tokens: Sequence[str], at: int) -> bool:
    """Whether what governs, named at ``at``, is left in force; of what may mean something else, unless set aside."""
    before, behind = tokens[max(0, at - 6) : at], tokens[at + 1 : at + 7]
    if {"no", "without", "none"}.intersection(before[-3:]):
        return False  # no limits, without any rules
    if _BINDS.intersection([*before, *behind]) and _NEGATIONS.intersection([*before, *behind]):
        return False  # limits do not apply, not bound by filters
    says_so = tokens[at] not in _GOVERNING
    for other in range(max(0, at - 7), min(len(tokens), at + 8)):
        is_turned = _turned(tokens, other) % 2 == 1
        if tokens[other] == "obey" and other < at:
            if is_turned:
                return False
            says_so = True
        elif tokens[other] in _SETS_ASIDE | _DOWNPLAYS:
            if not is_turned:
                return False
            says_so = True
    return says_so


def _against(rule: _Rule, tokens: Sequence[str], around: frozenset[str]) -> str:
    """Why a sentence goes against the rule, or nothing."""
    contrary = sum(token in _CONTRARY for token in tokens)
    says_the_same = False
    for action, parity in rule.actions.items():
        for at in range(len(tokens)):
            opposite = _speaks_of(action, tokens, at, rule, around)
            if opposite is None:
                continue
            says_the_same = True
            if parity == 0 and contrary != opposite:  # "do not protect it, never" negates twice, and once
                return "says not to do what it asks for"
            if parity == 1 and (opposite + _turned(tokens, at, rule.subjects)) % 2 == 0:
                return "says to do what it forbids"
    shared = [at for at, token in enumerate(tokens) if token in rule.subjects]
    if shared and len(rule.subjects & around) >= min(2, len(rule.subjects)):
        if rule.actions:
            is_other = 0 in rule.actions.values() and not says_the_same
        elif rule.parity:
            is_other = any(_turned(tokens, at, rule.subjects) % 2 == 0 for at in shared)
        else:
            is_other = contrary > 0
        if is_other:
            return "speaks of its subject, and does not say the same"
    if any(token in rule.condition and _taken_away(tokens, at) % 2 for at, token in enumerate(tokens)):
        return "takes away what it makes a condition"
    return ""


def _speaks_of(
    action: str, tokens: Sequence[str], at: int, rule: _Rule, around: frozenset[str]
) -> int | None:
    """Whether the word at ``at`` is the rule's action with its subject: 0, or 1 for the opposite; else None."""
    token = tokens[at]
    meant = _WEAKLY.get(token, token)
    if meant not in (action, _OPPOSITE.get(action)):
        return None
    strong = rule.subjects - _WEAK
    if meant != token:
        is_touched = bool(around & (strong or rule.subjects))
    else:  # with nothing but common words for a subject, or with nothing beside it, the action speaks for itself
        is_touched = not strong or bool(around & (rule.subjects | _ANYTHING)) or _content(tokens) == {token}
    return int(meant != action) if is_touched else None


def _taken_away(tokens: Sequence[str], at: int) -> int:
    """How many words around ``at`` say that it is not needed or not there."""
    count = 0
    for step in (-1, 1):
        for distance in range(1, _REACH + 1):
            other = at + step * distance
            if not 0 <= other < len(tokens) or tokens[other] == "|":
                break
            count += tokens[other] in _TAKING_AWAY
    return count
