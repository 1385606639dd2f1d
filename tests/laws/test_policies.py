from __future__ import annotations
import penstock as ps
def bad(x):
    if x % 7 == 3: raise ValueError(f"bad {x}")
    return x
def test_a():
    for o in [dict(executor="inline"),dict(num_workers=2)]:
        with ps.from_source(list(range(40))).map(bad,on_error=ps.Skip()).batch(4).feed(**o) as f:
            got=[b.tolist() for b in f]
        assert sum(got,[])==[x for x in range(40) if x%7!=3]
        assert all(len(b)==4 for b in got[:-1])
        with ps.from_source(list(range(40))).map(bad).batch(4).feed(on_error=ps.Replace(),**o) as f:
            got=[b.tolist() for b in f]
        assert sum(got,[])==[x if x%7!=3 else x+1 for x in range(40)]
