"""The script is complete, and says what it means."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from vpay_sandbox import plan
from vpay_sandbox.scenarios import ScenarioError, Script, load, status_step, submit_step

# The rail's failure reasons, and what the charge must say.
REASONS = {
    "NOT_ENOUGH_FUNDS": "insufficient_funds",
    "COULD_NOT_PERFORM_TRANSACTION": "payer_timeout",
    "EXPIRED": "payer_timeout",
    "PAYMENT_NOT_APPROVED": "payer_declined",
    "APPROVAL_REJECTED": "payer_declined",
    "PAYER_NOT_FOUND": "invalid_payer",
    "PAYER_LIMIT_REACHED": "payer_limit_reached",
    "SENDER_ACCOUNT_NOT_ACTIVE": "payer_account_blocked",
    "PAYEE_NOT_FOUND": "invalid_payee",
    "PAYEE_NOT_ALLOWED_TO_RECEIVE": "payee_account_blocked",
    "NOT_ALLOWED": "provider_account_blocked",
    "SERVICE_UNAVAILABLE": "provider_unavailable",
    "INTERNAL_PROCESSING_ERROR": "provider_error",
    "MOON_PHASE_UNFAVOURABLE": "provider_error",
}


def test_every_failure_reason_is_scripted(script: Script) -> None:
    played = {
        step.reason: scenario.expect.code
        for scenario in script.push
        for step in scenario.status
        if step.status == "FAILED" and isinstance(step.reason, str)
    }
    assert played == REASONS


def test_every_fault_of_the_contract_is_scripted(script: Script) -> None:
    assert script.by_name.keys() >= {
        "submit_500_but_recorded",
        "submit_unanswered_but_recorded",
        "submit_never_received",
        "status_503_for_a_while",
        "status_401_once",
        "status_404_three_times",
        "duplicate_409",
        "late_success",
        "contradiction",
        "wrong_amount",
        "slow_answers",
        "redirect_approved",
        "redirect_expired",
        "redirect_never_opened",
        "redirect_failed",
        "redirect_slow_answers",
        "redirect_submit_500_but_recorded",
        "worker_killed_while_asking",
        "confirm_killed_while_submitting",
    }


def test_a_failed_end_names_its_code_and_no_other_end_does(script: Script) -> None:
    for scenario in script.by_name.values():
        assert bool(scenario.expect.code) == (scenario.expect.state == "failed"), scenario.name


def test_steps_are_taken_in_order_and_the_last_one_repeats(script: Script) -> None:
    third = script.by_name["approved_third_poll"]
    said = [status_step(third, nth, 0.0).status for nth in range(5)]
    assert said == ["PENDING", "PENDING", "SUCCESSFUL", "SUCCESSFUL", "SUCCESSFUL"]
    lost = script.by_name["submit_never_received"]
    assert [submit_step(lost, nth).recorded for nth in range(3)] == [False, True, True]


def test_a_timed_step_holds_until_its_time_is_over(script: Script) -> None:
    late = script.by_name["late_success"]
    assert status_step(late, 0, 21.9).status == "PENDING"
    assert status_step(late, 0, 22.0).status == "SUCCESSFUL"


def test_what_the_rail_has_and_moves_in_the_end_follows_from_the_steps(script: Script) -> None:
    scenarios = script.all()
    assert [one.name for one in scenarios if not one.recorded] == [
        "submit_declined_payer_not_found",
        "redirect_submit_never_received",
    ]
    assert [one.name for one in scenarios if one.moves_anyway] == [
        "contradiction",
        "wrong_amount",
        "redirect_contradiction",
        "redirect_wrong_amount",
    ]
    assert [one.name for one in scenarios if one.past_horizon] == [
        "late_success",
        "never_answered",
        "wrong_amount",
        "redirect_never_opened",
        "redirect_late_success",
        "redirect_wrong_amount",
    ]


def test_the_sandboxs_windows_keep_productions_order(script: Script) -> None:
    table = tomllib.loads(
        plan.TEMPLATE.read_text().replace("$metrics_port", "1").replace("$merchants", "")
    )
    windows = table["windows"]
    slowest = max(table["ladders"]["poll"] + table["ladders"]["error"])
    late = min(one.for_s for scenario in script.all() for one in scenario.status if one.for_s)
    assert windows["rail_request"] < windows["submit_deadline"] < windows["recovery"]
    assert windows["submit_deadline"] <= windows["not_found"]
    # Three denials and a second submission fit in between.
    assert windows["recovery"] + windows["not_found"] + 4 * slowest <= windows["horizon"]
    # Asked at least once as unresolved, before it succeeds.
    assert windows["horizon"] + slowest <= late


def test_an_unknown_payer_succeeds(script: Script) -> None:
    assert script.of("237670000000").expect.state == "succeeded"


def test_an_amount_without_a_scenario_is_left_to_the_payer(script: Script) -> None:
    assert script.of_amount(3611).expect.code == "payer_timeout"
    assert script.of_amount(17).status[0].status == "INITIATED"


ENTRY = '[[push]]\nname = "a"\npayer = "1"\nexpect = {state = "succeeded"}\nstatus = [{}]\n'


REDIRECT = ENTRY.replace("push", "redirect").replace('payer = "1"', "amount = 1")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (REDIRECT.replace("amount", "payer"), "scenario a: 'amount'"),
        (REDIRECT.replace("{}", '{status = "SUCCESSFUL"}'), "unknown status SUCCESSFUL"),
        (REDIRECT + REDIRECT.replace('"a"', '"b"'), "two scenarios have one amount"),
        (ENTRY + REDIRECT, "two scenarios have one name"),
        (ENTRY.replace("status = [{}]\n", ""), "scenario a: 'status'"),
        (ENTRY.replace("[{}]", "[]"), "scenario a: no steps"),
        (ENTRY.replace("{}", '{status = "DONE"}'), "scenario a: unknown status DONE"),
        (ENTRY.replace("{}", '{answer = "nope"}'), "scenario a: unknown answer nope"),
        (ENTRY.replace("{}", "{slow = 1}"), "unexpected keyword argument 'slow'"),
        (ENTRY.replace("{}", "{times = 0}"), "at least once"),
        (ENTRY.replace('"succeeded"', '"won"'), "scenario a: unknown end won"),
        (ENTRY.replace('d"}', 'd", killed = "rail"}'), "scenario a: unknown victim rail"),
        (ENTRY + "colour = 1\n", r"unknown keys \['colour'\]"),
        (ENTRY + ENTRY, "two scenarios"),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "scenarios.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=fault):
        load(path)
