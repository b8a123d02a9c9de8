"""Validators of personal data: addresses, and numbers of phones, cards, accounts and ids.

Their shapes are in ``rules/personal.yml``. Names of persons are not found (see secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from council.agents.scan.rows import word_list
from council.agents.scan.shapes import RULES, Grade, Shape, Validator, load


def mail(value: str, match: re.Match[str]) -> Grade | None:
    """An address that may be a person's. A function's and one of a domain for examples are fake."""
    local, _, domain = value.lower().partition("@")
    *_, name, top = domain.split(".")
    if match.string[max(0, match.start("secret") - 1) : match.start("secret")] in {":", "/"}:
        return None  # of a URL, or of an address of git
    is_reserved = top in {"example", "test", "invalid"}
    if top in word_list("file_endings") or not (
        len(top) == 2 or top in word_list("top_domains") or is_reserved
    ):
        return None
    is_nobody = (
        local in word_list("nobody") or "noreply" in domain or local.startswith(("noreply", "no-reply"))
    )
    is_fake = is_reserved or name == "example" or domain in word_list("fake_domains")
    return "fake" if is_fake or is_nobody else "likely"


def phone(value: str, match: re.Match[str]) -> Grade | None:
    """A number of 8 to 15 digits, 9 of an international one. Runs, and those reserved for films, are fake."""
    digits = re.sub(r"\D", "", value)
    if not (9 if value[0] == "+" else 8) <= len(digits) <= 15:
        return None
    is_run = digits in "01234567890123456789" or len(set(digits)) <= 2
    # 555 is no area code of North America, and 555-01.. is reserved there.
    return "fake" if is_run or digits.startswith("1555") or "55501" in digits[-8:] else "likely"


def luhn(digits: str) -> bool:
    """Whether a number's last digit is the check digit of the others (ISO 7812)."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _iban(text: str) -> bool:
    """Mod 97 (ISO 13616)."""
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


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
    """Spain's check letter, mod 23."""
    number = str("XYZ".find(code[0])) + code[1:-1] if code[0] in "XYZ" else code[:-1]
    return code[-1] == "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]


def _nir(digits: str) -> bool:
    """France's key, mod 97."""
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


def _hetu(code: str) -> bool:
    """Finland's check character, mod 31."""
    return code[-1] == "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(re.sub(r"\D", "", code[:-1])) % 31]


def _nric(code: str) -> bool:
    """Singapore's check letter, mod 11 of weighted digits."""
    total = sum(int(d) * w for d, w in zip(code[1:8], (2, 7, 6, 5, 4, 3, 2), strict=True))
    return (
        code[8] == ("JZIHGFEDCBA" if code[0] in "ST" else "XWUTRQPNMLK")[(total + 4 * (code[0] in "TG")) % 11]
    )


def _steuer(digits: str) -> bool:
    """Germany's check digit (ISO 7064, mod 11, 10)."""
    product = 10
    for digit in digits[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def weighted(value: str, match: re.Match[str], modulus: str, rest: str, weights: str) -> Grade | None:
    """``sure`` if the digits times their weights give the rest by the modulus. X counts 10."""
    digits = [10 if char in "xX" else int(char) for char in re.sub(r"[^\dxX]", "", value)]
    total = sum(digit * int(weight) for digit, weight in zip(digits, weights.split(), strict=False))
    return "sure" if total % int(modulus) == int(rest) and len(set(digits)) > 2 else None


def card(value: str, match: re.Match[str]) -> Grade | None:
    """Luhn. Numbers made for tests repeat a digit; outside of tests they are suspicious."""
    digits = re.sub(r"\D", "", value)
    return ("likely" if len(set(digits)) < 4 else "sure") if luhn(digits) else None


def _checked(is_valid: Callable[[str], bool]) -> Validator:
    """``sure`` if the value is valid, without what separates its groups."""
    return lambda value, match: "sure" if is_valid(re.sub(r"[ .-]", "", value)) else None


VALIDATORS: dict[str, Validator] = {
    "mail": mail, "phone": phone, "weighted": weighted, "card": card, "luhn": _checked(luhn),
    "iban": _checked(_iban), "cpf": _checked(_cpf), "fiscale": _checked(_fiscale), "dni": _checked(_dni),
    "nir": _checked(_nir), "hetu": lambda value, match: "sure" if _hetu(value) else None,
    "nric": _checked(_nric), "steuer": _checked(_steuer), "any": lambda value, match: "sure",
}  # fmt: skip


@cache
def shapes() -> list[Shape]:
    """The shapes of personal data, in the order of ``rules/personal.yml``."""
    return load(RULES / "personal.yml", "privacy", VALIDATORS)
