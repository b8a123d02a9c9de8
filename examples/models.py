"""Language models in the seats: any server that speaks OpenAI's protocol. Needs the extra ``models``.

Run it with MODEL_URL=http://127.0.0.1:11434/v1 MODEL=qwen3:8b python examples/models.py
"""

import os
import sys

from council import Council, SeatConfig


def main() -> None:
    url, model = os.environ.get("MODEL_URL"), os.environ.get("MODEL")
    if not url or not model:
        sys.exit("set MODEL_URL and MODEL, as the first lines of this file show")
    seats = [SeatConfig(name, model=model, base_url=url) for name in ("prime", "lite", "codemind")]
    # The highest cost of each call is reserved before it is made. A call that does not fit is not made.
    with Council.inline(seats=seats, proposal_tokens_max=60_000) as council:
        decision = council.propose("Turn on two-factor sign-in for all employees")
        print(decision.explain())
        for account in decision.spent:
            print(account)


if __name__ == "__main__":
    main()
