"""An agent's loop, with a council in front of one tool.

The agent here is a list of tool calls. A real one asks its model for the next call, and shows it each result.
"""

from council import Council, NotApproved

CALLS = [
    {"command": "ls build"},
    {"command": "rm -rf /"},
]


def main() -> None:
    with Council.inline() as council:

        @council.guard(risk="low")
        def run_shell(command: str) -> str:
            return f"(here {command!r} would run)"

        for call in CALLS:
            try:
                result = run_shell(**call)
            except NotApproved as error:
                # In words that a model can act on: who objected, why, and what could be done instead.
                result = error.decision.explain()
            print(f"{call['command']}\n  {result}")


if __name__ == "__main__":
    main()
