"""What `import penstock` brings with it, seen from outside."""

from __future__ import annotations

import json

from programs import output_of

from check_rooms import EXTRAS, SLOW_TO_IMPORT

PROGRAM = """
import json, sys, time
import numpy
before = set(sys.modules)
start_ns = time.perf_counter_ns()
import penstock
print(json.dumps([sorted(set(sys.modules) - before), (time.perf_counter_ns() - start_ns) / 1e6]))
"""


def test_importing_penstock_imports_no_extra_no_framework_and_nothing_slow() -> None:
    imported, time_ms = json.loads(output_of("-c", PROGRAM))
    print(f"import penstock: {time_ms:.1f} ms over NumPy, {len(imported)} modules")  # 60 ms is the aim; a busy machine may take longer
    assert "penstock" in imported
    assert [name for name in imported if name.partition(".")[0] in SLOW_TO_IMPORT | set(EXTRAS)] == []
