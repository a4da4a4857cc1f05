from __future__ import annotations

import getpass
import os

import pytest

from syntony.io.user_name import user_name


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_has_a_number(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyError: before Python 3.13."""

    def nobody() -> str:
        raise error

    assert user_name()
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == f"uid {os.getuid()}"
