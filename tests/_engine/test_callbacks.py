from __future__ import annotations

from penstock._engine.error_policy import hear


def test_what_a_function_raises_goes_to_who_listens() -> None:
    heard: list[BaseException] = []
    hear(heard.append, divmod, 7, 2)
    assert heard == []
    hear(heard.append, divmod, 7, 0)
    hear(heard.append, exit, 3)
    assert [type(error) for error in heard] == [ZeroDivisionError, SystemExit]
