"""Sessions of people whom an identity provider vouches for, beside those of tokens."""

from __future__ import annotations

import pytest

from syntony.controller.access_tokens import SESSION_NS, AccessControl
from syntony.errors import UsageError
from syntony.model import S
from syntony.state import ControlState
from syntony.state.access_tokens import MAX_SESSIONS
from syntony.wire.access_tokens import AccessTokenCommand, RevokeAccessCommand
from syntony.wire.control import Issuer
from syntony.wire.roles import Identity, Role

OLGA, VICTOR = Identity(Role.OPERATOR, "olga"), Identity(Role.VIEWER, "victor")


def test_a_session_lasts_a_working_day_and_ends_when_it_is_revoked() -> None:
    now = [10 * S]
    with ControlState(None) as state:
        access = AccessControl(state, lambda: now[0])
        secret, kept = access.begin_person_session(OLGA, "http 10.0.0.1:5", 1, "subject 0815")
        assert (kept.role, kept.name, kept.parent) == ("operator", "olga", 0)
        assert access.find(secret) == kept
        now[0] += SESSION_NS - 1
        assert access.is_valid(kept)
        now[0] += 1
        assert not access.is_valid(kept)
        other = access.begin_person_session(OLGA, "x", 1, "")
        revoke = RevokeAccessCommand(number=other.access.number, by="x")
        assert access.revoke(revoke, Issuer("x", "y"), 1).numbers == (other.access.number,)
        with pytest.raises(UsageError, match="revoked"):
            access.find(other.secret)


def test_one_too_many_ends_the_oldest_of_that_person_only() -> None:
    with ControlState(None) as state:
        access = AccessControl(state, lambda: 10 * S)
        make = AccessTokenCommand(role="viewer", name="olga", valid_ns=3600 * S, by="x")
        token = access.make(make, Issuer("x", "y"), 1).token
        others = [access.begin_session(token, "x", 1).access]
        others.append(access.begin_person_session(VICTOR, "x", 1, "").access)
        mine = [
            access.begin_person_session(OLGA, "x", 1, "").access for _ in range(MAX_SESSIONS + 1)
        ]
        assert [access.is_valid(each) for each in mine] == [False] + [True] * MAX_SESSIONS
        assert all(map(access.is_valid, others)), "a token of the same name is somebody else's"
