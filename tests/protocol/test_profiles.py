"""Seats' profiles: the document's config.json, and every fault in one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from council.protocol.errors import EnvelopeError
from council.protocol.identity.profiles import Profiles, SeatProfile
from council.protocol.values import plain
from tests.cases import each

# The document's two examples, in one file.
DOCUMENTED: dict[str, Any] = {
    "shard_profiles": {
        "reviewer": {"model": "claude-opus-4-20250514", "temperature": 0.3, "max_context_tokens": 40000}
    },
    "core_limits": {
        "max_total_memory_mb": 4096,
        "max_concurrent_shards": 8,
        "max_facts_in_kernel": 200000,
        "max_derived_facts_limit": 100000,
    },
}


def test_the_documents_config_is_imported() -> None:
    found = Profiles.checked(DOCUMENTED)
    assert found.profile("reviewer") == SeatProfile(
        model="claude-opus-4-20250514", temperature=0.3, max_context_tokens=40_000
    )
    assert plain(found.shard_profiles["reviewer"].data()) == DOCUMENTED["shard_profiles"]["reviewer"]
    assert found.ignored == ("core_limits",)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_profile_that_is_not_there_is_the_default() -> None:
    found = Profiles.checked({**DOCUMENTED, "default_shard": {"model": "m", "max_execution_time_sec": 300}})
    assert found.profile("coder") == found.default_shard
    assert (found.default_shard.model, found.default_shard.max_execution_time_sec) == ("m", 300)
    assert Profiles.checked({}).profile("coder") == SeatProfile()


def test_what_was_saved_without_being_set_is_not_set() -> None:
    """Mutation: a file that its own program saved is refused for its zeros."""
    saved = {"model": "", "temperature": 0, "top_p": 0, "max_context_tokens": 0, "max_output_tokens": 0}
    saved |= {"max_execution_time_sec": 0, "max_facts_in_shard_kernel": 0}
    assert Profiles.checked({"shard_profiles": {"a": saved}}).profile("a") == SeatProfile(temperature=0)


def test_what_is_not_known_is_kept_or_named() -> None:
    found = Profiles.checked(
        {"provider": "x", "api_key": "secret", "shard_profiles": {"a": {"enable_learning": True}}}
    )
    assert found.profile("a").data()["enable_learning"] is True
    assert found.ignored == ("provider", "api_key")
    assert "secret" not in repr(found)
    assert Profiles.checked({"\x1b[2J": 1, "k" * 65: 2}).ignored == (r"'\x1b[2J'", rf"'{'k' * 40}\u2026'")


@each(
    ("data", "problem"),
    [
        ({"shard_profiles": []}, "shard_profiles: must be an object"),
        ({"shard_profiles": {"a": None}}, "shard_profiles.a: must be an object"),
        ({"shard_profiles": {"a b": {"model": 3}}}, "shard_profiles.'a b'.model: "),
        ({"shard_profiles": {"a": {"temperature": 2.1}}}, "shard_profiles.a.temperature: "),
        ({"shard_profiles": {"a": {"temperature": "0.3"}}}, "shard_profiles.a.temperature: "),
        ({"shard_profiles": {"a": {"top_p": 1.5}}}, "shard_profiles.a.top_p: "),
        ({"shard_profiles": {"a": {"max_context_tokens": -1}}}, "shard_profiles.a.max_context_tokens: "),
        ({"shard_profiles": {"a": {"max_context_tokens": 1.5}}}, "shard_profiles.a.max_context_tokens: "),
        ({"shard_profiles": {"a": {"max_output_tokens": True}}}, "shard_profiles.a.max_output_tokens: "),
        ({"default_shard": {"max_execution_time_sec": "300"}}, "default_shard.max_execution_time_sec: "),
        ({"default_shard": {"more": float("nan")}}, "default_shard.more: NaN"),
    ],
)
def test_a_fault_is_told_with_its_place(data: Any, problem: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        Profiles.checked(data)
    assert problem in caught.value.problems[0]


def test_all_faults_are_told_at_once() -> None:
    data = {
        "shard_profiles": {"a": {"model": 1, "top_p": 2}, "b": 3},
        "default_shard": {"max_output_tokens": -1},
    }
    with pytest.raises(EnvelopeError) as caught:
        Profiles.checked(data)
    assert len(caught.value.problems) == 4


def test_profiles_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        SeatProfile().model = "m"  # type: ignore[misc]
