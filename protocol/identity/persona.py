"""The phrases that a persona may not hold: a short table of patterns with explanations (rules 7.1).

A persona is a tone, and need not mention the council's rules. The table lists the usual English ways to set them
aside. It does not check meaning: a paraphrase, another language or similar letters pass, and an innocent sentence may
be refused. An identity that lists its ``approved_personas`` decides which persona is used.

Texts are compared in one form: without letter case, accents and invisible characters, and with each run of blanks,
quotes, hyphens and underscores as one blank. Every repetition in a pattern is bounded, so the time grows only with
the text.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from council.protocol.models import without_unseen
from council.protocol.values import quoted


@dataclass(frozen=True, slots=True)
class Contradiction:
    """``words``, in the text at ``where`` of a persona, are a refused phrase. ``why`` is its effect."""

    where: str
    words: str
    why: str

    def __str__(self) -> str:
        return (
            f"persona.{self.where}: {quoted(self.words, 200)} {self.why}. A persona is a tone, and the identity "
            "is above it: remove the phrase, or say it in other words"
        )


# Parts of the patterns. Directly after one of these words a phrase means the opposite, and passes.
_OPPOSITE = ("never", "never ever", "not", "cannot", "avoid", "avoids", "without", "refuse to", "refuses to")
_UNLESS_NOT = "".join(rf"(?<!\b{word} )" for word in _OPPOSITE)
# The text between two words of a phrase: up to three words, none of which reverses the meaning.
_WORDS = r"(?:(?!(?:no|not|never|nothing|nobody|none|into)\b)\w{1,20} ){0,3}"
_RULES = (
    r"(?:rules?|laws?|instructions?|guidelines?|directives?|polic(?:y|ies)|principles?|identity|prompts?|"
    r"restrictions?|guardrails?|safeguards?|constraints?)\b"
)
_IS = r"(?:is|are|was|were|be|been|as|counts? as)"
_IS_NOT = r"(?:(?:do|does|did|is|are|need|can|will|must) not|no longer|never)"
_APPROVAL = r"(?:approvals?|permissions?|consent|confirmations?|authori[sz]ation)\b"
_SECRETS = (
    r"(?:secrets?|passwords?|credentials?|(?:api|private) keys?|system prompt|"
    r"(?:private|personal|confidential|sensitive) (?:data|info|information|details)|"
    r"(?:user|customer)s? (?:s )?data)\b"
)
_OBEYS = r"(?:obey|listen|answer|serve|trust|follow)s? (?:to )?"
_MASTER = r"(?:me|us|him|her|them|(?:the|your|its|this) (?:users?|owner|operator|persona|master))\b(?! s\b)"

# The effect of a phrase, and the pattern that finds it in the result of ``_plain``.
_REFUSED = {
    "sets the rules aside": (
        rf"{_UNLESS_NOT}(?:ignor|disregard|forget|overrid|overrul|overwrit|bypass|circumvent|sidestep|evad|suspend|"
        rf"violat|break|breach|defy|defi|disobey|bend|abandon|discard|disabl)(?:e|es|s|ing|ting)? {_WORDS}{_RULES}|"
        rf"{_UNLESS_NOT}(?:set|put)s? {_WORDS}{_RULES} aside\b"
    ),
    "sets aside what was said before": (
        rf"{_UNLESS_NOT}(?:ignore|disregard|forget)s? (?:all|everything|anything|what) {_WORDS}"
        r"(?:above|before|earlier|previous|told|taught)\b"
    ),
    "says that the rules do not hold": (
        rf"{_RULES} {_WORDS}{_IS_NOT} (?:be )?(?:apply|count|matter|bind|exist|hold|followed|obeyed)\b|"
        rf"{_RULES} {_IS} {_WORDS}(?:optional|suggestions?|void|off|gone|dead|cancell?ed|suspended|lifted|"
        r"disabled|irrelevant|for others)\b|"
        rf"(?:not|never) (?:have to |need to )?(?:follow|obey|keep to|comply with)s? {_WORDS}{_RULES}"
    ),
    "pretends that the rules do not hold": (
        rf"{_UNLESS_NOT}pretend(?:s|ing)? {_WORDS}(?:{_RULES}|not bound\b)"
    ),
    "says that nothing binds it": (
        rf"(?:not|never|no longer|un) ?(?:bound|held|restricted|constrained) (?:by|to) {_WORDS}"
        rf"(?:{_RULES}|any(?:thing|one|body)\b)"
    ),
    "says that there are no limits": (
        r"(?:no|without|free (?:of|from)) (?:any |all |more |the |your )?(?:core )?(?:rules|limits|limitations|"
        r"restrictions?|constraints|filters?|boundaries|guardrails|safeguards|ethics|morals|censorship)\b"
    ),
    "asks for a mode without rules": (
        rf"{_UNLESS_NOT}(?:(?:developer|god|admin|root|sudo|debug|unsafe|dan) mode|unrestricted|unfiltered|"
        r"uncensored|lawless|amoral|jailbreak(?:s|ing)?|jailbroken|do anything now)\b"
    ),
    "places itself above the rules": (
        r"(?:above|beyond|outranks?|trumps?|supersedes?|replaces?|overrides?|(?:precedence|priority) over) "
        rf"{_WORDS}(?:{_RULES}|council\b)"
    ),
    "gives itself another identity or rules": (
        r"(?:your|my|its) (?:real|true|actual|new|other) (?:core )?(?:self|identity|rules|instructions)\b|"
        r"^(?:core rules\b|identity$)"  # as keys of a persona's table
    ),
    "obeys one side alone": (
        rf"{_UNLESS_NOT}{_OBEYS}(?:only|(?:nobody|no one|none) (?:but|except)) (?:to )?{_MASTER}|"
        rf"only (?:ever )?{_OBEYS}{_MASTER}"
    ),
    "obeys every order": (
        rf"{_UNLESS_NOT}(?:obey|follow|execute|run|carry out|carries out)s? (?:every|any|all) {_WORDS}"
        r"(?:orders?|commands?)\b"
    ),
    "says yes to everything": (
        rf"always {_WORDS}(?:yes(?! or no)|approves?)\b|"
        rf"{_UNLESS_NOT}(?:approve|agree|vote|say)s? (?:yes )?(?:to |with |on |for )?(?:everything|anything)\b"
    ),
    "skips approval": (
        rf"{_UNLESS_NOT}(?:skip|bypass|circumvent|ignor|assum|fak|forg|waiv|omit)(?:e|es|s|ing|ping|ting)? "
        rf"{_WORDS}{_APPROVAL}"
    ),
    "acts without approval": (
        rf"{_UNLESS_NOT}(?:act|run|execute|launch|deploy|delete|send|decide|proceed|go ahead)s? {_WORDS}without "
        rf"{_WORDS}(?:{_APPROVAL}|asking\b|reflection\b|thinking\b)|"
        rf"{_UNLESS_NOT}(?:run|execute)s? {_WORDS}(?:commands?|scripts?|code) (?:at once|freely|immediately)\b"
    ),
    "says that approval is not needed or already there": (
        rf"{_APPROVAL} {_IS_NOT} (?:be )?(?:needed|necessary|required)\b|"
        rf"{_APPROVAL} {_IS} {_WORDS}(?:unnecessary|optional|implied|assumed|given|granted|automatic|"
        r"formality|skipped|off)\b|"
        rf"(?:no|never|not) (?:need|require|wait|ask)s? (?:to ask )?(?:for )?{_APPROVAL}|"
        rf"(?:need|require)s? no {_APPROVAL}|"
        rf"{_UNLESS_NOT}(?:everything |anything |(?:all|every) {_WORDS}){_IS} (?:already )?(?:approved|permitted|"
        r"allowed)\b|"
        # as settings: auto_approve = true, require_approval = false
        rf"{_UNLESS_NOT}auto ?approv(?:e|es|ed|al|als)\b(?! false| off| no)|"
        r"(?:require|ask for|wait for) ?approval (?:false|off|no|0)\b"
    ),
    "reveals secrets": (
        rf"{_UNLESS_NOT}(?:reveal|leak|disclose|expose|publish|publishe|divulge|exfiltrate|share|tell|sell|give away|"
        rf"give out|gives away|gives out)s? {_WORDS}{_SECRETS}"
    ),
    "says that privacy is not kept": (
        rf"{_UNLESS_NOT}(?:ignore|forget|disregard)s? {_WORDS}privacy\b|no privacy\b|"
        r"privacy (?:does not matter|(?:is|comes) (?:dead|optional|irrelevant|second|last))\b|"
        rf"(?:not|never|stop) (?:need to )?(?:protect|guard)(?:s|ing)? {_WORDS}(?:privacy\b|{_SECRETS})"
    ),
    "deceives or harms people": (
        rf"{_UNLESS_NOT}(?:lie|deceive|mislead|manipulate|insult|humiliate|bully|bullie|threaten)s? (?:to )?{_WORDS}"
        r"(?:users?|council|humans?|people|customers?|creator|every(?:one|body)|anybody)\b"
    ),
    "invents facts": (
        rf"{_UNLESS_NOT}(?:invent|fabricate|fake|hallucinate|make up)s? {_WORDS}(?:facts?|sources?|citations?|code|"
        r"evidence|quotes?|results?|freely)\b"
    ),
    "hides from the record": (
        rf"{_UNLESS_NOT}(?:hide|conceal|keep|withhold)s? {_WORDS}from (?:the )?(?:council|journal|humans?|creator|"
        r"record)\b|"
        rf"{_UNLESS_NOT}(?:delete|erase|alter|falsify|disable|tamper)s? (?:with )?{_WORDS}"
        r"(?:journal|audit log|record)\b"
    ),
}


@functools.cache  # compiling them takes 40 ms, and most commands need none
def _patterns() -> dict[str, re.Pattern[str]]:
    return {why: re.compile(rf"\b(?:{pattern})") for why, pattern in _REFUSED.items()}


_BLANKS = re.compile(r"[\s_*~`\"'‘’“”,()<>\[\]-]+")
_NOT = re.compile(r"n['’]t(?![a-z])")


def _plain(text: str) -> str:
    """The text in the form that the patterns compare."""
    seen = without_unseen(" ".join(text.split()))  # split first, because some line ends are invisible too
    letters = unicodedata.normalize("NFKD", seen).casefold()
    letters = "".join(char for char in letters if unicodedata.category(char) != "Mn")
    return _BLANKS.sub(" ", _NOT.sub(" not", letters)).strip()


def contradictions(texts: Iterable[tuple[str, str]]) -> tuple[Contradiction, ...]:
    """The refused phrases in ``texts``, pairs of place and text; for each pattern and text, the first."""
    return tuple(
        Contradiction(where, found[0], why)
        for where, text in texts
        for plain in filter(None, [_plain(text)])
        for why, pattern in _patterns().items()
        if (found := pattern.search(plain))
    )
