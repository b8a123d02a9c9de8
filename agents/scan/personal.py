"""Patterns of personal data and their checksums: addresses, and numbers of phones, cards, accounts and ids.

Names of persons are not found (see secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

Grade = Literal["sure", "likely", "fake"]
Found = tuple[str, Grade, str, int]  # kind, grade, value, offset


def words(text: str) -> frozenset[str]:
    """The words of a table, as a set."""
    return frozenset(text.split())


def find(text: str) -> Iterator[Found]:
    """Everything personal in ``text``: kind, grade, value and offset."""
    yield from _mails(text)
    yield from _ibans(text)
    yield from _national_ids(text)
    yield from _cards(text)
    yield from _phones(text)


# E-mail: the @ is searched first, so that a text of a million dots costs one scan

_LOCAL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._%+-]{0,62}[A-Za-z0-9_])?\Z")
_LOCAL_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-")
_DOMAIN = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,5}[A-Za-z]{2,18}(?![A-Za-z0-9_(\[=])"
)
_TLDS = words(
    "com org net edu gov mil int info biz name pro app dev cloud tech online site xyz email systems agency "
    "company shop store health care bank finance legal media news digital studio group global world life "
    "live software solutions services support team academy school university museum travel jobs mobi"
)
_FILE_ENDINGS = words("py js ts rs go md sh so cc rb pl ps")
_NOBODY = words(
    "noreply no-reply donotreply do-not-reply info support security admin administrator webmaster postmaster "
    "hostmaster abuse hello contact sales team dev devops ops help press legal privacy billing jobs careers "
    "office service root git hg svn user username name me you your your.name yourname email mail someone "
    "somebody foo bar baz test tester testuser example john.doe jane.doe johndoe janedoe jdoe bot ci"
)
_FAKE_DOMAINS = words(
    "test.com domain.com yourdomain.com mydomain.com foo.com bar.com email.com acme.com company.com"
)


def _mails(text: str) -> Iterator[Found]:
    at = text.find("@")
    while at >= 0:
        start = at
        while start > 0 and at - start < 65 and text[start - 1] in _LOCAL_CHARS:
            start -= 1
        while start < at and not text[start].isalnum():
            start += 1
        local = _LOCAL.match(text[start:at])
        domain = _DOMAIN.match(text, at + 1)
        if local and domain and len(local.group()) >= 2 and text[max(0, start - 1) : start] not in {":", "/"}:
            grade = _mail_grade(local.group().lower(), domain.group().lower())
            if grade:
                yield "e-mail address", grade, text[start : domain.end()], start
        at = text.find("@", at + 1)


def _mail_grade(local: str, domain: str) -> Grade | None:
    *_, name, top = domain.split(".")
    is_reserved = top in {"example", "test", "invalid"}
    if top in _FILE_ENDINGS or not (len(top) == 2 or top in _TLDS or is_reserved):
        return None
    if is_reserved or name == "example" or domain in _FAKE_DOMAINS:
        return "fake"
    is_nobody = local in _NOBODY or "noreply" in domain or local.startswith(("noreply", "no-reply"))
    return "fake" if is_nobody else "likely"


# Account numbers: country, length and mod 97 (ISO 13616)

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,4})?(?![A-Za-z0-9])"
)
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FO FI GL NL SD", 19: "MK SI", 20: "AT BA EE KZ XK LT LU",
        21: "HR LV LI CH", 22: "BH BG CR GE DE IE ME RS GB VA", 23: "TL GI IL AE IQ SO",
        24: "AD CZ MD PK RO SA SK ES SE TN VG", 25: "PT ST", 26: "IS TR", 27: "FR GR IT MR MC SM",
        28: "AL AZ CY DO GT HU LB PL SV NI", 29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC", 32: "LC",
    }.items()
    for country in countries.split()
}  # fmt: skip
_EXAMPLE_IBANS = words(
    "DE89370400440532013000 GB82WEST12345698765432 GB29NWBK60161331926819 GB33BUKB20201555555555 "
    "FR1420041010050500013M02606 FR7630006000011234567890189 NL91ABNA0417164300 ES9121000418450200051332 "
    "IT60X0542811101000000123456 CH9300762011623852957 BE68539007547034 AT611904300234573201"
)


def _ibans(text: str) -> Iterator[Found]:
    for match in _IBAN.finditer(text):
        bare = match.group().replace(" ", "")
        size = _IBAN_LENGTHS.get(bare[:2], 0)
        if len(bare) < size or not size:
            continue
        bare = bare[:size]  # the pattern may include the next word
        if int("".join(str(int(char, 36)) for char in bare[4:] + bare[:4])) % 97 == 1:
            # A documented example belongs to nobody, but outside of tests it is suspicious.
            grade: Grade = "likely" if bare in _EXAMPLE_IBANS else "sure"
            spaced = re.match(rf"(?: ?\w){{{size}}}", match.group())
            yield "bank account (IBAN)", grade, spaced.group() if spaced else bare, match.start()


# Payment cards: issuer's prefix, length, Luhn

_CARD = re.compile(
    r"(?<![A-Za-z0-9_.,+/-])"
    r"(?:[2-6]\d{3}(?:[ -]?\d{4}){2,3}(?:[ -]?\d{1,3})?|3[47]\d{2}[ -]?\d{6}[ -]?\d{5}"
    r"|3[068]\d{2}[ -]?\d{6}[ -]?\d{4})"
    r"(?![A-Za-z0-9_/-])(?!\.\d)"
)
_TEST_CARDS = words(
    "4111111111111111 4242424242424242 4012888888881881 4000056655665556 5555555555554444 5105105105105100 "
    "2223003122003222 5200828282828210 378282246310005 371449635398431 6011111111111117 6011000990139424 "
    "3056930009020004 30569309025904 38520000023237 3530111333300000 4000000000000002 4000000000009995 "
    "4000002500003155 4532015112830366 4916338506082832 4539578763621486"
)
_ISSUERS = (
    (re.compile(r"4"), {16}),
    (re.compile(r"5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)"), {16}),
    (re.compile(r"3[47]"), {15}),
    (re.compile(r"6011|64[4-9]|65"), {16}),
    (re.compile(r"35(?:2[89]|[3-8])"), {16}),
    (re.compile(r"30[0-5]|36|38"), {14}),
)


def luhn(digits: str) -> bool:
    """Whether a number's last digit is the check digit of the others (ISO 7812)."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _cards(text: str) -> Iterator[Found]:
    for match in _CARD.finditer(text):
        bare = re.sub(r"\D", "", match.group())
        known = any(prefix.match(bare) and len(bare) in lengths for prefix, lengths in _ISSUERS)
        if not known or not luhn(bare):
            continue
        # Published test numbers move no money, and most repeat a digit. See the IBANs above.
        grade: Grade = "likely" if bare in _TEST_CARDS or len(set(bare)) < 4 else "sure"
        yield "payment card number", grade, match.group(), match.start()


# National ids: those with a checksum, or with a word that names them

_CONTEXT_CHARS = 60  # characters before an id that may hold the word that names it
_SSN = re.compile(r"(?<![\w.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])(?!\.\d)")
_SSN_FAKE = frozenset({"123-45-6789", "078-05-1120", "219-09-9999", "111-11-1111", "987-65-4321"})


def _follows_word(word: str, text: str, start: int) -> bool:
    return bool(re.compile(word, re.IGNORECASE).search(text, max(0, start - _CONTEXT_CHARS), start))


def _national_ids(text: str) -> Iterator[Found]:
    for match in _SSN.finditer(text):
        is_named = _follows_word("ssn|social.?security|tax.?id", text, match.start())
        grade: Grade = "fake" if match.group() in _SSN_FAKE else "sure" if is_named else "likely"
        yield "social security number (US)", grade, match.group(), match.start()
    for kind, pattern, word, is_valid in _IDS:
        for match in pattern.finditer(text):
            bare = re.sub(r"[ .-]", "", match.group())
            if is_valid(bare) and (not word or _follows_word(word, text, match.start())):
                yield kind, "fake" if bare == _DNI_FAKE else "sure", match.group(), match.start()


def _cpf(digits: str) -> bool:
    """Brazil's two check digits, each mod 11 over the digits before it."""
    sums = (sum(int(d) * (size + 1 - at) for at, d in enumerate(digits[:size])) for size in (9, 10))
    return len(set(digits)) > 1 and [int(digit) for digit in digits[9:]] == [n * 10 % 11 % 10 for n in sums]


_FISCALE_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def _fiscale(code: str) -> bool:
    """Italy's check letter: odd places by table, even places by value, mod 26."""
    values = [int(char) if char.isdigit() else ord(char) - ord("A") for char in code]
    return values[15] == (sum(_FISCALE_ODD[value] for value in values[:15:2]) + sum(values[1:15:2])) % 26


def _dni(code: str) -> bool:
    number = str("XYZ".find(code[0])) + code[1:-1] if code[0] in "XYZ" else code[:-1]
    return code[-1] == "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]


def _nir(digits: str) -> bool:
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


def _pesel(digits: str) -> bool:
    return sum(int(d) * w for d, w in zip(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1), strict=True)) % 10 == 0


# Kind, shape, the word that must come before it if its check alone is weak, and its check.
_IDS: tuple[tuple[str, re.Pattern[str], str, Callable[[str], bool]], ...] = (
    ("tax id (Brazil, CPF)", re.compile(r"(?<![\w.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\w-])(?!\.\d)"), "", _cpf),
    ("tax code (Italy)", re.compile(
        r"(?<![A-Za-z0-9])[A-Z]{6}\d{2}[ABCDEHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?![A-Za-z0-9])"), "", _fiscale),
    ("national id (Spain)", re.compile(
        r"(?<![A-Za-z0-9])(?:\d{8}|[XYZ]\d{7})-?([A-Z])(?![A-Za-z0-9])"), "dni|nie|nif", _dni),
    ("social security number (France)", re.compile(
        r"(?<![A-Za-z0-9.])[12] ?\d{2} ?(?:0[1-9]|1[0-2]) ?\d{2} ?\d{3} ?\d{3} ?\d{2}(?![A-Za-z0-9])(?!\.\d)"
    ), "", _nir),
    ("national id (Poland)", re.compile(r"(?<![A-Za-z0-9.])\d{11}(?![A-Za-z0-9])(?!\.\d)"), "pesel", _pesel),
)  # fmt: skip
_DNI_FAKE = "12345678Z"


# Phone numbers: international with +, or North American with its punctuation

_PLUS = re.compile(r"(?<![\w.+=)-])\+[1-9]\d{0,2}(?:[ .()/-]{0,2}\d{1,5}){2,6}(?![\w])")
_NORTH_AMERICAN = re.compile(
    r"(?<![\w.+/-])(?:\([2-9]\d{2}\) ?|[2-9]\d{2}-)[2-9]\d{2}-\d{4}(?![\w-])(?!\.\d)"
)


def _phones(text: str) -> Iterator[Found]:
    for pattern in (_PLUS, _NORTH_AMERICAN):
        for match in pattern.finditer(text):
            digits = re.sub(r"\D", "", match.group())
            if not 8 <= len(digits) <= 15 or (pattern is _PLUS and len(digits) < 9):
                continue
            run = digits in "01234567890123456789" or len(set(digits)) <= 2
            fictional = "55501" in digits[-8:]  # 555-01xx is reserved for films
            yield "phone number", "fake" if run or fictional else "likely", match.group(), match.start()
