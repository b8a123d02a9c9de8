"""Follows the events of a council as they occur: ballots, decisions, escalations."""

from council import Council


def main() -> None:
    with Council.inline() as council:
        council.propose("Rotate the staging key")
        for event in council.events(follow=False):  # follow=True goes on as long as the council does
            print(event.position, event.kind, event.data.get("seat", ""))


if __name__ == "__main__":
    main()
