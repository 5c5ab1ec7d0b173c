"""Who may do what: the whole of it, as the catalogues have it after schema/roles.sql."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
MATRIX = Path(__file__).with_name("grants.txt")

GRANTS = """
SELECT role.rolname::text, held.what, string_agg(held.privilege, ', ' ORDER BY held.privilege)
FROM (
    SELECT acl.grantee, 'SCHEMA vpay' AS what, acl.privilege_type AS privilege
    FROM pg_namespace, aclexplode(nspacl) AS acl
    WHERE nspname = 'vpay'
    UNION ALL
    SELECT acl.grantee, relname::text, acl.privilege_type
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE relnamespace = 'vpay'::regnamespace
    UNION ALL
    SELECT acl.grantee,
        relname || ' (' || string_agg(attname::text, ', ' ORDER BY attnum) || ')',
        acl.privilege_type
    FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid,
        aclexplode(attacl) AS acl
    WHERE relnamespace = 'vpay'::regnamespace
    GROUP BY acl.grantee, relname, acl.privilege_type
    UNION ALL
    SELECT acl.grantee, 'FUNCTION ' || proname, acl.privilege_type
    FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl
    WHERE pronamespace = 'vpay'::regnamespace
) AS held
LEFT JOIN pg_roles AS role ON role.oid = held.grantee
WHERE NOT coalesce(role.rolsuper, false)
GROUP BY 1, 2
ORDER BY role.rolname::text COLLATE "C", held.what COLLATE "C", 3
"""
"""All but the owner's own; PUBLIC has no name."""


@pytest.fixture
def connection(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((ROOT / "schema" / "roles.sql").read_bytes())
        yield connection


def test_each_role_has_exactly_what_is_written_here(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute(GRANTS.encode()).fetchall()
    found = "".join(f"{role}: {what}: {privileges}\n" for role, what, privileges in rows)
    assert found == MATRIX.read_text("utf-8"), f"if it should be so, write it there:\n{found}"


def test_nothing_is_anybodys(connection: psycopg.Connection[Any]) -> None:
    roles = {row[0] for row in connection.execute(GRANTS.encode()).fetchall()}
    assert roles == {"vpay_dispatcher", "vpay_operator", "vpay_web", "vpay_worker"}
    given = "SELECT count(*) FROM pg_default_acl WHERE defaclnamespace = 'vpay'::regnamespace"
    assert connection.execute(given.encode()).fetchall() == [(0,)]


def test_a_later_table_is_nobodys_until_the_file_is_run_again(
    connection: psycopg.Connection[Any],
) -> None:
    before = connection.execute(GRANTS.encode()).fetchall()
    connection.execute("CREATE TABLE vpay.later (id bigint GENERATED ALWAYS AS IDENTITY)")
    assert connection.execute(GRANTS.encode()).fetchall() == before


def test_no_function_has_its_owners_rights_or_anothers_search_path(
    connection: psycopg.Connection[Any],
) -> None:
    query = """
        SELECT proname FROM pg_proc
        WHERE pronamespace = 'vpay'::regnamespace
            AND (prosecdef OR NOT coalesce('search_path=pg_catalog' = ANY(proconfig), false))
    """
    assert connection.execute(query.encode()).fetchall() == []


def test_the_roles_are_nobodys_logins_and_rule_nothing(connection: psycopg.Connection[Any]) -> None:
    query = """
        SELECT rolname FROM pg_roles
        WHERE rolname LIKE 'vpay\\_%'
            AND (rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication
                OR rolbypassrls)
    """
    assert connection.execute(query.encode()).fetchall() == []
    members = """
        SELECT pg_get_userbyid(member)::text, pg_get_userbyid(roleid)::text FROM pg_auth_members
        WHERE pg_get_userbyid(member) LIKE 'vpay\\_%' ORDER BY 1
    """
    assert connection.execute(members.encode()).fetchall() == [
        ("vpay_dispatcher", "pg_read_all_stats"),
        ("vpay_operator", "pg_read_all_stats"),
    ]
