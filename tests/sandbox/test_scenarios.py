"""The script is complete, and says what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_the_demo_meets_every_failure_reason(script: Script) -> None:
    played = {
        step.reason: scenario.expect.code
        for scenario in script.demo()
        for step in scenario.status
        if step.status == "FAILED" and isinstance(step.reason, str)
    }
    assert played == REASONS


def test_the_demo_also_has_approvals_and_slow_answers_and_no_faults(script: Script) -> None:
    demo = script.demo()
    names = {scenario.name for scenario in demo}
    assert {"approved_first_poll", "approved_third_poll", "slow_answers"} <= names
    assert all(step.answer == 202 for scenario in demo for step in scenario.submit)
    assert all(step.answer == 200 for scenario in demo for step in scenario.status)


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
    assert status_step(late, 0, 29.9).status == "PENDING"
    assert status_step(late, 0, 30.0).status == "SUCCESSFUL"


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
        (ENTRY + "colour = 1\n", r"unknown keys \['colour'\]"),
        (ENTRY + ENTRY, "two scenarios"),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "scenarios.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=fault):
        load(path)
