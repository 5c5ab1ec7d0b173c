"""What may stand in a sandbox's settings is refused beside real money."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import ROOT
from vpay_tasks import config
from vpay_tasks.errors import Configuration
from vpay_tasks.webhooks import vetting

KEY = "dmlkZW8ga2lsbGVkIHRoZSByYWRpbyBzdGFyIC4uLi4="
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DSN = "https://0123456789abcdef@sentry.example.com/7"
ENV = {
    "PAYER_KEY": KEY,
    "HOOK_SECRET": SECRET,
    "OLD_SECRET": SECRET + "x",
    "PLAIN_DSN": DSN.replace("https", "http"),
    "DB_PASSWORD": "geheim-1",
    "BROKER_PASSWORD": "geheim-2",
}
GOOD = """
[livemode]
enabled = true
[database]
url = "postgresql://vpay:${DB_PASSWORD}@db.example/shop?sslmode=verify-full&sslrootcert=system&channel_binding=require"
[broker]
url = "rediss://vpay:${BROKER_PASSWORD}@broker.example:6380/0"
[keys]
payer_ref = ["${PAYER_KEY}"]
[rails.mtn_momo]
base_url = "https://proxy.momoapi.mtn.com"
[[merchants]]
id = "acme"
[[merchants.endpoints]]
id = "main"
url = "https://hooks.example.com/acme"
secrets = ["${HOOK_SECRET}", { secret = "${OLD_SECRET}", expires = 2030-01-01T00:00:00Z }]
"""


def faults(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    """Of the settings as they are read, and of the endpoints in them."""
    path = tmp_path / "vpay.toml"
    path.write_text(text, "utf-8")
    try:
        return vetting.faults(config.read(path, ENV if env is None else env))
    except Configuration as error:
        return [line.strip() for line in str(error).splitlines()[1:]]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_livemode_is_read_when_nothing_of_a_sandbox_is_beside_it(tmp_path: Path) -> None:
    assert faults(tmp_path, GOOD) == []


DATABASE = "@db.example/shop?sslmode=verify-full&sslrootcert=system&channel_binding=require"
BROKER = "rediss://vpay:${BROKER_PASSWORD}@broker.example:6380/0"
RABBIT = "amqps://vpay:${BROKER_PASSWORD}@broker.example/%2F"


def database(after: str) -> str:
    return changed(DATABASE, after)


def broker(url: str) -> str:
    return changed(BROKER, url)


LINES = [
    (GOOD + "[egress]\nallow_private_targets = true\n", "egress.allow_private_targets: is a"),
    (changed('"${PAYER_KEY}"', ""), "keys.payer_ref: livemode stores"),
    (changed("${PAYER_KEY}", KEY), "keys.payer_ref.0: in livemode ${NAME} or"),
    (changed("${HOOK_SECRET}", SECRET), "merchants.0.endpoints.0.secrets.0: in livemode"),
    (changed("${HOOK_SECRET}", "x${HOOK_SECRET}"), "merchants.0.endpoints.0.secrets.0: in "),
    (changed("${OLD_SECRET}", SECRET), "merchants.0.endpoints.0.secrets.1: in livemode"),
    (changed("https://proxy", "http://proxy"), "rails.mtn_momo.base_url: in livemode https"),
    (changed("proxy.", "sandbox."), "rails.mtn_momo.base_url: a sandbox's or a stand-in's"),
    (changed("proxy.", "MockRail."), "rails.mtn_momo.base_url: a sandbox's or a stand-in's"),
    (changed("https://hooks", "http://hooks"), "url: ssrf_blocked: SCHEME"),
    (changed("hooks.", "wiremock."), "url: ssrf_blocked: HOST_NAME"),
    (changed("hooks.example.com", "localhost"), "url: ssrf_blocked: HOST_NAME"),
    (changed("hooks.example.com", "93.184.216.34"), "url: ssrf_blocked: HOST_LITERAL"),
    (changed("hooks.example.com", "10.0.0.1"), "url: ssrf_blocked: ADDR_PRIVATE"),
    (changed("hooks.example.com", "hooks.example.com:8443"), "url: ssrf_blocked: PORT"),
    (GOOD + f"[sentry]\ndsn = '{DSN}'\n", "sentry.dsn: in livemode ${NAME} or"),
    (GOOD + "[sentry]\ndsn = '${PLAIN_DSN}'\n", "sentry.dsn: in livemode https://"),
    # The way to Postgres.
    *(
        (database(after), "database.url: livemode speaks to another machine by verified TLS")
        for after in (
            DATABASE.replace("sslmode=verify-full&", ""),
            DATABASE.replace("verify-full", "verify-ca"),
            DATABASE.replace("verify-full", "require"),
            DATABASE + "&sslmode=prefer",  # the last one counts
            DATABASE.replace("verify-full", "prefer").replace("db.example", "localhost"),
            DATABASE.replace("verify-full", "prefer").replace("db.example", "10.0.0.7"),
            DATABASE.replace("verify-full", "prefer").replace("db.example", "[::ffff:10.0.0.7]"),
            DATABASE.replace("verify-full", "prefer").replace("db.example", "127.0.0.1,b.example"),
            DATABASE.replace("verify-full", "prefer").replace("db.example", "") + "&host=db",
            DATABASE.replace("verify-full", "prefer").replace("db.example", "127.0.0.1")
            + "&hostaddr=10.0.0.7",
            DATABASE.replace("verify-full", "prefer") + "&hostaddr=127.0.0.1",
        )
    ),
    (database(DATABASE.replace("sslrootcert=system&", "")), "database.url: add sslrootcert=/path"),
    (database(DATABASE.replace("=system", "=/no/ca.pem")), "sslrootcert, /no/ca.pem, is not there"),
    (database(DATABASE.replace("=require", "=prefer")), "database.url: add channel_binding=req"),
    (database(DATABASE + "&service=shop"), "database.url: livemode can't look into a service"),
    (database(DATABASE.replace("=require", "=prefer&sslcert=/c.pem")), "database.url: add channel"),
    *(
        (database(f"{DATABASE}&ssl_min_protocol_version={least}"), "take ssl_min_protocol_version")
        for least in ("TLSv1", "tlsv1.1", "")
    ),
    (database(DATABASE + "&sslkeylogfile=/tmp/keys"), "database.url: take sslkeylogfile out"),
    (changed("${DB_PASSWORD}", "geheim"), "database.url: its password in livemode as ${NAME}"),
    (changed("${DB_PASSWORD}", "x${DB_PASSWORD}"), "database.url: its password in livemode as"),
    (database(DATABASE + "&password=geheim"), "database.url: its password in livemode as ${NAME}"),
    # The way to the broker.
    (changed("${BROKER_PASSWORD}", "geheim"), "broker.url: its password in livemode as ${NAME}"),
    *(
        (broker(url), "broker.url: livemode speaks to another machine by verified TLS only: write")
        for url in (
            BROKER.replace("rediss", "redis"),
            BROKER.replace("rediss", "valkey"),
            BROKER.replace("rediss", "redis").replace("broker.example", "localhost"),
            RABBIT.replace("amqps", "amqp"),
        )
    ),
    (broker("rediss://broker.example"), "broker.url: livemode needs a password"),
    (broker("rediss://broker.example?password=&ssl_certfile="), "livemode needs a password"),
    (broker("valkeys://vpay@broker.example"), "broker.url: livemode needs a password"),
    *(
        (broker(url), "broker.url: livemode needs a user of our own with a password")
        for url in (
            RABBIT.replace("vpay:${BROKER_PASSWORD}@", ""),
            RABBIT.replace("vpay:", "guest:"),
            RABBIT.replace("vpay:", "%67uest:"),
        )
    ),
]
"""A settings file with one thing of a sandbox's, and what is said of it."""


@pytest.mark.parametrize(("text", "fault"), LINES)
def test_a_sandboxs_setting_beside_real_money_is_a_fault_by_name(
    tmp_path: Path, text: str, fault: str
) -> None:
    (found,) = faults(tmp_path, text)
    assert fault in found
    assert SECRET not in found
    assert KEY not in found
    assert "geheim" not in found
    assert [line for line in documented() if line.match(found)], found


def documented() -> list[re.Pattern[str]]:
    """The lines of docs/livemode.md, by which an operator finds what to do."""
    table = (ROOT / "docs" / "livemode.md").read_text("utf-8")
    lines = re.findall(r"^\| `([^`]+)` \| \S", table, re.MULTILINE)
    return [re.compile(re.sub("<[a-z]+>", ".+?", re.escape(line))) for line in lines]


def test_every_line_of_the_manual_is_said_by_some_settings(tmp_path: Path) -> None:
    said = [found for text, _ in LINES for found in faults(tmp_path, text)]
    said += faults(tmp_path, GOOD, {**ENV, "SSLKEYLOGFILE": "/tmp/keys"})
    said += faults(tmp_path, GOOD, {**ENV, "HOOK_SECRET": "short"})
    said += faults(tmp_path, GOOD + OTHER, {**ENV, "THEIR_SECRET": SECRET})
    # tests/store/test_way.py, tests/runtime/test_broker_tls.py: said by what the libraries do.
    said += ["database.url: the server asked for a password, and got one of the password file"]
    said += ["broker.url: livemode verifies the broker's certificate: take protocol out"]
    assert not [line.pattern for line in documented() if not any(map(line.match, said))]
    assert len(documented()) == 23


def test_all_of_it_is_told_at_once(tmp_path: Path) -> None:
    text = database("@db.example/shop").replace(BROKER, "redis://broker.example")
    found = faults(tmp_path, text.replace('"${PAYER_KEY}"', ""))
    assert [line.partition(" ")[0] for line in found] == [
        *["broker.url:"] * 2,
        *["database.url:"] * 3,
        "keys.payer_ref:",
    ]


@pytest.mark.parametrize(
    "text",
    [
        database("@/shop"),  # the usual socket
        database("@%2Frun%2Fpostgresql/shop"),
        database("@127.0.0.1:6432/shop"),
        database("@[::1]/shop?sslmode=disable"),
        database("@/shop?host=127.0.0.1,/run/postgresql"),
        database("@/shop?hostaddr=127.0.0.1"),
        changed(
            ":${DB_PASSWORD}" + DATABASE,
            DATABASE.replace("&channel_binding=require", "&sslcert=/c.pem&sslkey=/k.pem"),
        ),
        database(DATABASE + "&ssl_min_protocol_version=tlsv1.3"),
        database(DATABASE.replace("&channel_binding=require", "")).replace(
            "[database]", '[database]\npulse = "lease"'
        ),
        broker("redis://127.0.0.1:6379/0"),
        broker("redis://[::1]:6379"),
        broker("unix:///run/valkey.sock?db=0"),
        broker("amqp://127.0.0.1"),
        broker(RABBIT + "?ssl_options={'ca_certs':'/ca.pem'}"),
        broker("rediss://broker.example/?ssl_certfile=/c.pem&ssl_keyfile=/k.pem"),
        broker("rediss://:${BROKER_PASSWORD}@broker.example/?ssl_ca_certs=/ca.pem"),
    ],
)
def test_ways_that_stay_here_or_prove_themselves_otherwise_are_none(
    tmp_path: Path, text: str
) -> None:
    assert faults(tmp_path, text) == []


def test_the_environment_counts_as_the_library_counts_it(tmp_path: Path) -> None:
    bare = database("@db.example/shop")
    given = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": "system", "PGCHANNELBINDING": "require"}
    assert faults(tmp_path, bare, ENV | given) == []
    assert len(faults(tmp_path, bare, ENV | given | {"PGSSLMODE": "require"})) == 1
    assert len(faults(tmp_path, bare, ENV | given | {"PGSERVICE": "shop"})) == 1
    assert len(faults(tmp_path, bare, ENV | given | {"PGSSLMINPROTOCOLVERSION": ""})) == 1
    certificate = {**given, "PGCHANNELBINDING": "prefer", "PGSSLCERT": "/c.pem"}
    nameless = changed(":${DB_PASSWORD}" + DATABASE, "@db.example/shop")
    assert faults(tmp_path, nameless, ENV | certificate) == []
    assert len(faults(tmp_path, nameless, ENV | certificate | {"PGPASSWORD": "geheim"})) == 1
    # Whatever the host of a socket's URL is set to.
    assert faults(tmp_path, database("@/shop"), ENV) == []
    assert len(faults(tmp_path, database("@/shop"), ENV | {"PGHOST": "db.example"})) == 3
    assert len(faults(tmp_path, database("@/shop"), ENV | {"PGHOSTADDR": "10.0.0.7"})) == 3


def test_an_address_from_the_environment_may_hold_its_password(tmp_path: Path) -> None:
    addresses = {
        "VPAY_DATABASE_URL": "postgresql://vpay:geheim@/shop",
        "VPAY_BROKER_URL": "rediss://vpay:geheim@broker.example",
    }
    written = changed("${DB_PASSWORD}", "geheim")  # not what is used
    assert faults(tmp_path, written, ENV | addresses) == []


@pytest.mark.parametrize(
    ("secret", "right"),
    [("s" * 31, False), ("whsec_" + "s" * 31, False), ("s" * 32, True), ("é" * 16, True)],
)
def test_a_secret_that_can_be_guessed_is_a_fault(tmp_path: Path, secret: str, right: bool) -> None:
    found = faults(tmp_path, GOOD, {**ENV, "HOOK_SECRET": secret})
    short = "merchants.acme.endpoints.main.secrets.0: livemode takes 32 bytes and more"
    assert found == ([] if right else [short])


OTHER = """
[[merchants]]
id = "other"
[[merchants.endpoints]]
id = "main"
url = "https://hooks.example.com/other"
secrets = ["${THEIR_SECRET}"]
"""


def test_a_secret_of_two_merchants_is_a_fault_of_both(tmp_path: Path) -> None:
    assert faults(tmp_path, GOOD + OTHER, {**ENV, "THEIR_SECRET": "t" * 32}) == []
    env = {**ENV, "THEIR_SECRET": ENV["OLD_SECRET"]}
    first, second = faults(tmp_path, GOOD + OTHER, env)
    assert first.startswith("merchants.acme.endpoints.main.secrets.1: is another merchant's, too")
    assert second.startswith("merchants.other.endpoints.main.secrets.0: is another merchant's")
    assert SECRET not in first + second
    test = (GOOD + OTHER).replace("enabled = true", "enabled = false")
    assert faults(tmp_path, test, env) == []


def test_one_secret_at_two_endpoints_of_a_merchant_is_none(tmp_path: Path) -> None:
    second = OTHER.replace('[[merchants]]\nid = "other"\n', "").replace('"main"', '"second"')
    assert faults(tmp_path, GOOD + second, {**ENV, "THEIR_SECRET": SECRET}) == []


def test_a_vendors_secret_in_the_clear_is_a_fault_too(tmp_path: Path) -> None:
    inbox = '[inbox.stripe]\nscheme = "stripe"\nsecrets = ["${HOOK_SECRET}"]\n'
    assert faults(tmp_path, GOOD + inbox) == []
    (found,) = faults(tmp_path, GOOD + inbox.replace("${HOOK_SECRET}", SECRET))
    assert found.startswith("inbox.stripe.secrets.0: in livemode ${NAME} or")
    account = '[inbox.stripe.accounts.acct_1]\nsecrets = ["${HOOK_SECRET}"]\n'
    assert faults(tmp_path, GOOD + inbox + account) == []
    (found,) = faults(tmp_path, GOOD + inbox + account.replace("${HOOK_SECRET}", SECRET))
    assert found.startswith("inbox.stripe.accounts.acct_1.secrets.0: in livemode ${NAME} or")


def test_what_a_rail_knows_us_by_is_a_secret_whatever_it_is_called(tmp_path: Path) -> None:
    for key in ("api_key", "subscription_key", "client_secret", "merchant_key", "TOKEN"):
        rail = changed("[[merchants]]", f'{key} = "${{HOOK_SECRET}}"\n[[merchants]]')
        assert faults(tmp_path, rail) == []
        (found,) = faults(tmp_path, rail.replace(f'{key} = "${{HOOK_SECRET}}"', f'{key} = "k"'))
        assert found.startswith(f"rails.mtn_momo.{key}: in livemode ${{NAME}} or")
    assert faults(tmp_path, changed("[[merchants]]", 'api_user = "u"\n[[merchants]]')) == []


def test_a_merchants_own_key_in_the_clear_is_a_fault_too(tmp_path: Path) -> None:
    text = changed('id = "acme"', 'id = "acme"\napi_keys = ["${API_KEY}"]')
    assert faults(tmp_path, text, {**ENV, "API_KEY": "k" * 32}) == []
    (found,) = faults(tmp_path, text.replace("${API_KEY}", "k" * 32))
    assert found.startswith("merchants.0.api_keys.0: in livemode ${NAME} or")


def test_a_secret_from_a_file_is_none_in_the_clear(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    assert faults(tmp_path, changed("${HOOK_SECRET}", f"${{file:{tmp_path}/secret}}")) == []


def test_a_file_of_tls_keys_is_refused_beside_real_money(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, GOOD, {**ENV, "SSLKEYLOGFILE": "/tmp/keys"})
    assert found.startswith("SSLKEYLOGFILE is set: ")


def test_further_ports_are_called_by_livemode_when_they_are_allowed(tmp_path: Path) -> None:
    text = changed("hooks.example.com", "hooks.example.com:8443")
    assert faults(tmp_path, text + "[egress]\nports = [443, 8443]\n") == []


def test_nothing_of_it_is_asked_of_test_mode(tmp_path: Path) -> None:
    sandbox = (
        GOOD.replace("enabled = true", "enabled = false")
        .replace("${HOOK_SECRET}", "short")
        .replace("${PAYER_KEY}", KEY)
        .replace("https://", "http://")
        .replace("hooks.example.com", "localhost")
    )
    assert faults(tmp_path, sandbox + "[egress]\nallow_private_targets = true\n") == []
