"""A human's answer from Python, where no shell reaches the council. The decision follows from it."""

import threading

from council import Council


def main() -> None:
    with Council.inline() as council:

        @council.guard(risk="high", wait_for_human=True)
        def drop_database(database: str) -> str:
            return f"dropped {database}"

        # In a real program the agent waits here, and a person answers from elsewhere.
        agent = threading.Thread(target=lambda: print(drop_database(database="prod")))
        agent.start()
        while not (waiting := council.escalations()) and agent.is_alive():
            agent.join(0.05)
        print(waiting[0].summary)
        decision = council.answer(waiting[0].escalation_id, approve=True, reason="it is backed up")
        print(decision)
        agent.join()


if __name__ == "__main__":
    main()
