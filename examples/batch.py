"""A hundred proposals at once: one decision or one error for each, in their order."""

from collections import Counter

from council import Council, CouncilError


def main() -> None:
    with Council.inline() as council:
        proposals = [f"Send the reminder of invoice {number}" for number in range(100)]
        results = council.propose_many(proposals, timeout_s=30)
    counted = Counter(
        result.code if isinstance(result, CouncilError) else (result.outcome or "waits for a human")
        for result in results
    )
    print(dict(counted))


if __name__ == "__main__":
    main()
