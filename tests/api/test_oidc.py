"""What an OpenID Connect provider says, and what of it is believed: hostile variants as a table."""

from __future__ import annotations

import ssl
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.issuer import CLIENT, SECRET, Issuer, Json, jwk, sign

from syntony.api import oidc
from syntony.api.oidc import Login, Person, Provider, person_of
from syntony.api.problems import ProblemError, ProblemType
from syntony.controller.config import OidcConfig
from syntony.controller.pki import create_authority
from syntony.errors import ConfigError
from syntony.model import HOUR_NS
from syntony.wire.roles import Identity, Role

CONSOLE = "https://syntony.example:8445"
OLGA = Person(Identity(Role.OPERATOR, "olga"), "0815")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()
    yield found
    found.end()


def config(issuer: str, tmp_path: Path, **fields: Any) -> OidcConfig:
    file = tmp_path / "oidc.secret"
    file.write_text(f"{SECRET}\n")
    given: dict[str, Any] = {
        "issuer": issuer, "url": CONSOLE, "client_id": CLIENT, "client_secret_file": str(file),
        "operators": ("fleet-operators",), "viewers": ("fleet-viewers", "all"),
    } | fields  # fmt: skip
    return OidcConfig(**given)


def log_in(provider: Provider, issuer: Issuer, attempt: str = "one") -> Person:
    """As a browser does it."""
    login = Login.of(attempt)
    back = urllib.parse.urlsplit(issuer.consent(provider.login_url(login)))
    assert back._replace(query="").geturl() == f"{CONSOLE}/api/v1/oidc/callback"
    given = dict(urllib.parse.parse_qsl(back.query))
    assert given["state"] == login.state
    return provider.person(given["code"], login)


def test_the_challenge_is_that_of_rfc_7636() -> None:
    login = Login("", "", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    assert login.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_what_a_login_needs_follows_from_its_secret_alone() -> None:
    one, other = Login.of("one"), Login.of("other")
    assert one == Login.of("one")
    assert len({*one, *other, one.challenge, other.challenge}) == 8
    assert all(len(each) == 43 for each in one), "RFC 7636: 43 to 128 characters"


def test_a_person_logs_in(issuer: Issuer, tmp_path: Path) -> None:
    provider = Provider(config(issuer.url, tmp_path))
    assert log_in(provider, issuer) == OLGA
    issuer.person["groups"] = "all"
    assert log_in(provider, issuer).identity == Identity(Role.VIEWER, "olga")
    assert issuer.asked.count("/.well-known/openid-configuration") == 1
    assert issuer.asked.count("/keys") == 1


def test_the_secret_may_go_in_the_body_or_be_absent(issuer: Issuer, tmp_path: Path) -> None:
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert log_in(Provider(config(issuer.url, tmp_path)), issuer) == OLGA
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
    with pytest.raises(ProblemError, match=r"by none of private_key_jwt"):
        log_in(Provider(config(issuer.url, tmp_path)), issuer)
    issuer.metadata = {}
    with pytest.raises(ProblemError, match="refuses the login"):
        log_in(Provider(config(issuer.url, tmp_path, client_secret_file="")), issuer)


def test_a_code_is_good_with_its_verifier_only(issuer: Issuer, tmp_path: Path) -> None:
    provider = Provider(config(issuer.url, tmp_path))
    back = issuer.consent(provider.login_url(Login.of("mine")))
    code = urllib.parse.parse_qs(urllib.parse.urlsplit(back).query)["code"][0]
    with pytest.raises(ProblemError, match="refuses the login") as found:
        provider.person(code, Login.of("thine"))
    assert found.value.reason is ProblemType.UNAUTHENTICATED


def changed(**fields: Any) -> Callable[[Json], str]:
    """A well signed token whose claims are others; None: absent."""

    def make(claims: Json) -> str:
        given = claims | {
            name: value(claims) if callable(value) else value for name, value in fields.items()
        }
        return sign({name: value for name, value in given.items() if value is not None})

    return make


def tampered(claims: Json) -> str:
    head, _, signature = sign(claims).split(".")
    other = sign(claims | {"groups": ["fleet-operators"], "preferred_username": "mallory"})
    return f"{head}.{other.split('.')[1]}.{signature}"


def after(name: str, seconds: int) -> Callable[[Json], int]:
    return lambda claims: claims[name] + seconds


HOSTILE: dict[str, tuple[Callable[[Json], str], str]] = {
    "wrong audience": (changed(aud="another"), "Audience"),
    "no audience": (changed(aud=None), "aud"),
    "two audiences, no azp": (changed(aud=[CLIENT, "another"]), "azp"),
    "made for another": (changed(azp="another"), "azp"),
    "expired": (changed(exp=after("iat", -61)), "expired"),
    "no expiry": (changed(exp=None), "exp"),
    "from the future": (changed(iat=after("iat", 600)), "not yet valid"),
    "not valid yet": (changed(nbf=after("iat", 600)), "not yet valid"),
    "another issuer": (changed(iss="https://evil.example"), "issuer"),
    "another login": (changed(nonce="guessed"), "nonce"),
    "no nonce": (changed(nonce=None), "nonce"),
    "a nonce that is none": (changed(nonce=[1]), "nonce"),
    "no subject": (changed(sub=None), "sub"),
    "a subject that is a number": (changed(sub=7), "Subject"),
    "a subject with a line": (changed(sub="a\nb"), "sub"),
    "a long subject": (changed(sub="x" * 256), "sub"),
    "alg none": (lambda claims: sign(claims, algorithm="none"), "'none'"),
    "alg None": (lambda claims: sign(claims, algorithm="nOnE"), "'nOnE'"),
    "signed with the public key": (lambda claims: sign(claims, algorithm="HS256"), "'HS256'"),
    "unknown key": (lambda claims: sign(claims, "b"), "does not list"),
    "foreign key under a known name": (lambda claims: sign(claims, "b", kid="a"), "Signature"),
    "a key that is named oddly": (lambda claims: sign(claims, kid=["a"]), "Key ID"),
    "another algorithm than its own": (lambda claims: sign(claims, alg="ES256"), "not acceptable"),
    "critical header": (lambda claims: sign(claims, crit=["x"], x=1), "crit"),
    "tampered": (tampered, "Signature"),
    "no token": (lambda _: "rubbish", "segments"),
    "empty": (lambda _: "", "segments"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_acceptable(issuer: Issuer, tmp_path: Path, name: str) -> None:
    provider = Provider(config(issuer.url, tmp_path))
    issuer.make, why = HOSTILE[name]
    with pytest.raises(ProblemError, match=why) as found:
        log_in(provider, issuer)
    assert found.value.reason is ProblemType.UNAUTHENTICATED
    issuer.make = sign
    assert log_in(provider, issuer, "again") == OLGA, "it harms nobody else"


def test_clocks_may_differ_by_a_minute(issuer: Issuer, tmp_path: Path) -> None:
    provider = Provider(config(issuer.url, tmp_path))
    issuer.make = changed(iat=after("iat", 50), exp=after("iat", -50))
    assert log_in(provider, issuer) == OLGA
    issuer.make = changed(aud=[CLIENT, "another"], azp=CLIENT)
    assert log_in(provider, issuer) == OLGA


def test_a_key_without_a_name_must_be_the_only_one(issuer: Issuer, tmp_path: Path) -> None:
    issuer.make = lambda claims: sign(claims, kid=None)
    issuer.keys = [jwk("b") | {"use": "enc"}, jwk("a")]
    assert log_in(Provider(config(issuer.url, tmp_path)), issuer) == OLGA
    issuer.keys = [jwk("b"), jwk("a")]
    with pytest.raises(ProblemError, match="does not list"):
        log_in(Provider(config(issuer.url, tmp_path)), issuer)


@pytest.mark.parametrize("change", [{"alg": "PS256"}, {"kty": "EC"}, {"n": "?"}, {"kty": None}])
def test_a_key_that_cannot_be_used(
    issuer: Issuer, tmp_path: Path, change: dict[str, str | None]
) -> None:
    issuer.keys = [jwk("a") | change]
    with pytest.raises(ProblemError, match="not acceptable"):
        log_in(Provider(config(issuer.url, tmp_path)), issuer)


def test_keys_are_asked_for_again_when_one_is_new(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider(config(issuer.url, tmp_path))
    assert log_in(provider, issuer) == OLGA
    issuer.keys, issuer.make = [jwk("b")], lambda claims: sign(claims, "b")
    with pytest.raises(ProblemError, match="does not list"):
        log_in(provider, issuer)
    assert issuer.asked.count("/keys") == 1, "not at every token with an unknown key"
    monkeypatch.setattr(oidc, "MIN_KEY_REFRESH_NS", 0)
    assert log_in(provider, issuer) == OLGA
    issuer.make = sign
    with pytest.raises(ProblemError, match="does not list"):
        log_in(provider, issuer)


NOT_A_PROVIDER: dict[str, tuple[Json, str]] = {
    "another's name": ({"issuer": "https://evil.example"}, "calls itself 'https://evil.example'"),
    "plain addresses": ({"token_endpoint": "http://192.0.2.1/token"}, "not https"),
    "a plain way out": ({"end_session_endpoint": "http://192.0.2.1/end"}, "not https"),
    "odd addresses": ({"jwks_uri": "file:///etc/passwd"}, "not https"),
    "no addresses": ({"authorization_endpoint": 7}, "authorization_endpoint"),
    "a missing page": ({"token_endpoint": None}, "token_endpoint"),
}


@pytest.mark.parametrize("name", NOT_A_PROVIDER)
def test_discovery_that_is_not_to_be_used(issuer: Issuer, tmp_path: Path, name: str) -> None:
    issuer.metadata, why = NOT_A_PROVIDER[name]
    provider = Provider(config(issuer.url, tmp_path))
    with pytest.raises(ProblemError, match=why) as found:
        provider.login_url(Login.of("one"))
    assert found.value.reason is ProblemType.PROVIDER
    issuer.metadata = {}
    assert log_in(provider, issuer) == OLGA, "it was not kept"


@pytest.mark.parametrize("endpoint", [None, ""])
def test_a_provider_without_a_way_out(issuer: Issuer, tmp_path: Path, endpoint: Any) -> None:
    issuer.metadata = {"end_session_endpoint": endpoint}
    provider = Provider(config(issuer.url, tmp_path))
    assert provider.logout_url() == ""
    assert log_in(provider, issuer) == OLGA


def test_a_way_out_with_a_query_of_its_own(issuer: Issuer, tmp_path: Path) -> None:
    issuer.metadata = {"end_session_endpoint": f"{issuer.url}/end?realm=a"}
    found = Provider(config(issuer.url, tmp_path)).logout_url()
    assert found.startswith(f"{issuer.url}/end?realm=a&client_id=")


@pytest.mark.parametrize("tokens", [{"access_token": "x"}, {"id_token": 7}, [1]])
def test_an_answer_without_a_token(issuer: Issuer, tmp_path: Path, tokens: Any) -> None:
    issuer.tokens = tokens
    with pytest.raises(ProblemError, match="sends an unusable answer") as found:
        log_in(Provider(config(issuer.url, tmp_path)), issuer)
    assert found.value.reason is ProblemType.PROVIDER


def test_a_provider_that_is_gone(tmp_path: Path) -> None:
    issuer = Issuer()
    provider = Provider(config(issuer.url, tmp_path))
    url = provider.login_url(Login.of("one"))
    issuer.end()
    assert provider.login_url(Login.of("one")) == url, "what it said of itself is kept"
    with pytest.raises(ProblemError, match="does not answer") as found:
        provider.person("code", Login.of("one"))
    assert found.value.reason is ProblemType.PROVIDER


def test_over_tls_the_providers_certificate_counts(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "ca")
    files = authority.issue(
        "login", Role.CONTROLLER, addresses=["127.0.0.1"], lifetime_ns=HOUR_NS, directory=tmp_path
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    issuer = Issuer(context)
    try:
        trusting = Provider(config(issuer.url, tmp_path, ca=str(files.ca)))
        assert trusting.login_url(Login.of("one")).startswith(f"{issuer.url}/authorize?")
        with pytest.raises(ProblemError, match="CERTIFICATE_VERIFY_FAILED"):
            Provider(config(issuer.url, tmp_path)).login_url(Login.of("one"))
    finally:
        issuer.end()


def person(**claims: Any) -> Person:
    given = {"sub": "s", "aud": CLIENT, "nonce": "n", "preferred_username": "olga"} | claims
    found = OidcConfig(
        issuer="https://login.example", url=CONSOLE, client_id=CLIENT,
        operators=("ops", "admins"), viewers=("all",),
    )  # fmt: skip
    return person_of(given, found, "n")


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        ("ops", Role.OPERATOR),
        (["all", "admins"], Role.OPERATOR),
        (["x", "all"], Role.VIEWER),
        ([["ops"], 7, None, "all"], Role.VIEWER),
        ("op", None),
        ("OPS", None),
        ("ops all", None),
        (["x"], None),
        ([], None),
        (None, None),
        (7, None),
        ({"ops": True}, None),
    ],
)
def test_roles_are_an_allow_list(groups: Any, role: Role | None) -> None:
    if role is None:
        with pytest.raises(ProblemError, match="olga has no role here") as found:
            person(groups=groups)
        assert found.value.reason is ProblemType.DENIED
    else:
        assert person(groups=groups).identity == Identity(role, "olga")


@pytest.mark.parametrize("name", [None, "", 7, ["olga"], "two words", "a\nb", "<img>", "x" * 64])
def test_names_that_cannot_be_written_into_the_audit_log(name: Any) -> None:
    with pytest.raises(ProblemError, match="cannot be a name here") as found:
        person(groups="ops", preferred_username=name)
    assert found.value.reason is ProblemType.DENIED
    assert len(found.value.detail) < 300


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"issuer": "login.example"}, "oidc.issuer"),
        ({"issuer": "http://login.example"}, "oidc.issuer"),
        ({"issuer": "https://login.example?x=1"}, "oidc.issuer"),
        ({"issuer": "https://a:b@login.example"}, "oidc.issuer"),
        ({"issuer": "https://login.example:port"}, "oidc.issuer"),
        ({"url": "http://syntony.example"}, "oidc.url"),
        ({"client_id": ""}, "oidc.client_id"),
        ({"client_secret_file": "/no/such"}, "oidc.client_secret_file: /no/such"),
        ({"client_secret_file": "/dev/null"}, "not a regular file"),
        ({"scopes": ("profile",)}, "oidc.scopes"),
        ({"operators": (), "viewers": ()}, "nobody may log in"),
        ({"ca": "/no/such"}, "oidc.ca"),
    ],
)
def test_a_configuration_that_cannot_be_used(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    good = config("https://login.example", tmp_path)
    Provider(good)
    with pytest.raises(ConfigError, match=why):
        Provider(msgspec.structs.replace(good, **fields))
