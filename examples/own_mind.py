"""A reviewer of your own in a seat. It is a function of one case; the other seats keep their static checks."""

from council import Action, Case, Council, Opinion, SeatConfig

LIMIT = 500


def spending(case: Case) -> Opinion:
    if case.action is None or case.action.tool != "pay":
        return Opinion.yes("it pays nobody")
    amount = case.action.args["amount"]  # a KeyError here costs this ballot, and the decision names it
    if amount > LIMIT:
        return Opinion.no(f"{amount} is above the limit of {LIMIT}", risk_level="high")
    return Opinion.yes(f"{amount} is within the limit of {LIMIT}")


def main() -> None:
    seats = [
        SeatConfig("prime"),
        SeatConfig("lite"),
        SeatConfig("codemind"),
        SeatConfig("budget", mind=spending),
    ]
    with Council.inline(seats=seats) as council:
        for args in ({"to": "acme", "amount": 40}, {"to": "acme", "amount": 4_000}, {"to": "acme"}):
            decision = council.propose("Pay the invoice", action=Action("pay", args))
            print(args)
            print(f"  {decision.explain()}")


if __name__ == "__main__":
    main()
