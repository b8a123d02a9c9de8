"""Worker processes that share one council, as those of a task queue do. Run ``council up`` first."""

import multiprocessing

from council import Council


def work(number: int) -> str:
    with Council.connect() as council:
        return str(council.propose(f"Send the reminder of invoice {number}"))


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        for line in pool.map(work, range(3)):
            print(line)


if __name__ == "__main__":
    main()
