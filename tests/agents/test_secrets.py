"""Secrets and personal data: what is found, what is not, and that hostile text costs no time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.scan.personal import luhn
from council.agents.scan.secrets import entropy, find_private, is_placeholder, mask
from tests.examples import tried
from tests.patience import GROWTH_MAX, growth

REAL = [
    ('AWS_KEY = "AKIA' + 'Q7ZK3NVX2LMPT5RW"', "AWS access key"),
    ("ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8", "GitHub token"),
    ("glpat-" + "9aZ8bY7cX6dW5eV4fU3g", "GitLab token"),
    ("sk_live_" + "51H8xYz2eZvKYlo2C9mNpQrS", "Stripe live key"),
    ("AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "Google API key"),
    ("sk-proj-" + "9aZ8bY7cX6dW5eV4fU3gT2hS1i", "OpenAI-style key"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq3Vd8nE0yqW2kZtR5xJ1cPfLhUaGmSoNvKrTzXwQyBdCeF\n",
        "private key block",
    ),
    ("postgres://app:Tr0ub4dor@db.internal.corp:5432/x", "connection string with a password"),
    ('api_key = "a8f5f167f44f4964e6c998dee827110c"', "secret assigned by name"),
    ('password: "S3cr3tP@ssw0rd!"', "secret assigned by name"),
    ("AUTH_TOKEN=3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c", "secret assigned by name"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJlc2lnbmF0dXJl", "JSON web token"),
    ("GB94BARC10201530093459", "bank account (IBAN)"),
    ("4539 1488 0343 6467", "payment card number"),
    ("ssn: 536-22-8471", "social security number (US)"),
    ("CPF 529.982.247-25", "tax id (Brazil, CPF)"),
    ("RSSMRA85T10A562S", "tax code (Italy)"),
]


def test_real_ones_are_found_for_sure() -> None:
    assert {
        text: found
        for text, kind in REAL
        if (found := [(f.kind, f.grade) for f in find_private(text)]) != [(kind, "sure")]
    } == {}


LIKELY = [
    "anna.schmidt@firma-weber.de",
    "+49 170 5554321",
    "(415) 867-5309",
    'password = "hunter2"',
    "4111 1111 1111 1111",
]


def test_what_only_looks_so_is_likely() -> None:
    assert {
        text: found for text in LIKELY if (found := [f.grade for f in find_private(text)]) != ["likely"]
    } == {}


HARMLESS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a" * 36,
    'password = "changeme"',
    'password = os.environ["DB_PASSWORD"]',
    "token: ${TOKEN}",
    'token = "<your-token>"',
    'token_type = "bearer12345678"',
    "postgres://postgres:postgres@localhost/app",
    "postgres://app:${DB_PASSWORD}@db.corp.com/app",
    'if "-----BEGIN PRIVATE KEY-----" in text:',
    "id 123e4567-e89b-12d3-a456-426614174000",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "integrity: sha512-9aZ8bY7cX6dW5eV4fU3gT2hS1i9aZ8bY7cX6dW5eV4fU3gT2hS1i==",
    "1700000000000 20240101123000 2024-01-01T12:30:00Z",
    "4539 1488 0343 6468",
    "GB95BARC10201530093459",
    "me@example.com, noreply@github.com, git@github.com:a/b",
    "lodash@4.17.21",
    "x@np.array",
    "tokens: list[int] = tokenizer.encode(text)",
    "self.password = password",
    'api_key = "123e4567-e89b-12d3-a456-426614174000"',
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
]


def test_harmless_ones_are_not_found() -> None:
    assert {
        text: found for text in HARMLESS if (found := [f for f in find_private(text) if f.grade != "fake"])
    } == {}


def test_a_finding_never_holds_the_secret() -> None:
    secret = "AKIA" + "Q7ZK3NVX2LMPT5RW"
    (found,) = find_private(f"one\ntwo {secret}")
    assert (found.masked, found.line) == ("AKIA…", 2)
    assert secret not in repr(found)
    assert mask("abc") == "a…"


def test_a_pile_of_fakes_does_not_hide_a_real_one() -> None:
    """Fails if fakes count into the limit on findings."""
    text = "AKIAIOSFODNN7EXAMPLE\n" * 5_000 + "AKIA" + "Q7ZK3NVX2LMPT5RW"
    assert [f.grade for f in find_private(text) if f.grade != "fake"] == ["sure"]


def test_assignments_can_be_left_out_for_lock_files() -> None:
    text = 'api_key = "a8f5f167f44f4964e6c998dee827110c"'
    assert find_private(text, assignments=False) == []


def test_checksums_and_entropy() -> None:
    assert luhn("4539148803436467")
    assert not luhn("4539148803436468")
    assert entropy("aaaa") == 0.0
    assert entropy("abcd") == 2.0
    assert is_placeholder("your-api-key")
    assert not is_placeholder("9aZ8bY7cX6dW5eV4")


@pytest.mark.parametrize(
    "text",
    [
        "a." * 50_000,
        "a" * 100_000 + "@" + "b." * 50_000,
        "@" * 100_000,
        "password = " * 10_000,
        "1 " * 100_000,
        "://a:" * 30_000,
        "eyJ" * 50_000,
        "-----BEGIN RSA PRIVATE KEY-----" + "\n" * 100_000,
        "AB12 " * 40_000,
        "4111-" * 40_000,
        "AccountKey=" * 20_000,
        "a@b.co " * 20_000,
    ],
    ids=range(12),
)
def test_hostile_text_is_read_in_the_time_of_its_length(text: str) -> None:
    """Backtracking takes seconds or minutes here, and a linear scan 0.2 s."""
    assert growth(find_private, text) < GROWTH_MAX


@settings(max_examples=tried(200), deadline=None)
@given(st.text(max_size=2_000))
def test_any_text_is_read(text: str) -> None:
    for finding in find_private(text):
        assert 0 <= finding.start < finding.end <= len(text)
        assert finding.line == text[: finding.start].count("\n") + 1
