"""Ray tasks that share one council. Needs the extra ``ray``."""

import ray

from council import Council


@ray.remote
def work(name: str, number: int) -> str:
    with Council.connect(name=name) as council:
        return str(council.propose(f"Send the reminder of invoice {number}"))


def main(name: str = "reminders") -> None:
    with Council.launch(name=name, store="memory"):
        for line in ray.get([work.remote(name, number) for number in range(3)]):
            print(line)


if __name__ == "__main__":
    main()
