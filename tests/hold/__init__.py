"""Everything that users rely on, held while the code is restructured: ``pytest tests/hold``.

Each test compares what the code does now with a file in this folder, so that a change is one diff to review:

- ``wire.json``: envelopes of each type as JSON, and their bytes. ``python -m tests.hold.wire --write``
- ``journal.db.xz``, ``journal.sql.xz``: a journal that commit 681f55c wrote, in SQLite and as a dump of PostgreSQL;
  ``journal.jsonl.xz`` is its export, and ``told.json.xz`` is what the commands said of it.
  ``python -m tests.hold.make_journal`` made them. Do not make them anew: they stand for the journals of users.
- ``names.txt``: the public names with their signatures. ``python -m tests.hold.names --write``
- ``settings.txt``: the keys of council.toml. ``python -m tests.hold.settings --write``
- ``errors.txt``: the classes of errors and their codes. ``python -m tests.hold.errors --write``
- ``options.txt``: the command line's options. ``python -m tests.hold.options --write``
- ``shapes.txt``: exit codes, and the keys and types of what each command prints with ``--json``.
  ``python -m tests.hold.shapes --write``; ``shapes_on_ray.txt`` has those that need Ray (tests/ray/test_hold.py).

The tests use what is public: ``council``, the command ``council``, and files on disk. They reach what has no public
name through ``doors.py`` alone, so where code moves, its imports are changed there. The story of the journal is told
with the tests' own harness. Words of messages are not held, but for those that the rules write into the journal.
"""
