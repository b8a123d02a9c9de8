"""Makes ``tests.sim`` importable by its own name, whatever directory pytest is started in."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)
