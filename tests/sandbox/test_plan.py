"""The orders of a demo: every scenario, over its rail, in an order that can be killed at."""

from __future__ import annotations

import random
from collections import Counter

from vpay_sandbox import demo, plan
from vpay_sandbox.scenarios import Script

KILLED = ["worker_killed_while_asking", "confirm_killed_while_submitting"]


def test_the_default_demo_plays_every_scenario_and_kills_once(script: Script) -> None:
    orders = plan.orders(script, demo.PAYMENTS, 1)
    played = Counter(order.scenario for order in orders)
    assert len(orders) == demo.PAYMENTS
    assert played.keys() == script.by_name.keys()
    assert [played[name] for name in KILLED] == [1, 1]


def test_many_payments_kill_once_too(script: Script) -> None:
    played = Counter(order.scenario for order in plan.orders(script, 500, 1))
    assert [played[name] for name in KILLED] == [1, 1]
    assert played["approved_first_poll"] >= 9


def test_few_payments_are_the_first_scenarios(script: Script) -> None:
    orders = plan.orders(script, 3, 1)
    assert {order.scenario for order in orders} == {one.name for one in script.push[:3]}
    assert orders.crash == []


def test_a_quick_demo_outlasts_no_horizon_and_kills(script: Script) -> None:
    orders = plan.orders(script, demo.PAYMENTS, 1, quick=True)
    late = {one.name for one in script.all() if one.past_horizon}
    assert {order.scenario for order in orders} == script.by_name.keys() - late


def test_victims_come_first_and_the_confirm_last_of_them_then_the_late_ones(
    script: Script,
) -> None:
    for seed in range(5):
        orders = plan.orders(script, demo.PAYMENTS, seed)
        assert [order.scenario for order in orders.crash] == KILLED
        late = [script.by_name[order.scenario].past_horizon for order in orders.rest]
        assert late == sorted(late, reverse=True)
        assert [order.number for order in orders] == list(range(1, demo.PAYMENTS + 1))


def test_the_seed_decides_the_order_and_the_amounts(script: Script) -> None:
    seed = random.randint(0, 1_000_000)
    assert list(plan.orders(script, 60, seed)) == list(plan.orders(script, 60, seed))
    assert list(plan.orders(script, 60, seed)) != list(plan.orders(script, 60, seed + 1))


def test_an_order_fits_its_rail(script: Script) -> None:
    for order in plan.orders(script, demo.PAYMENTS, 1):
        scenario = script.by_name[order.scenario]
        if scenario in script.push:
            assert (order.rail, order.currency, order.payer) == ("mtn_momo", "EUR", scenario.payer)
        else:
            assert (order.rail, order.currency, order.payer) == ("orange_money", "XAF", None)
            assert script.of_amount(order.amount) == scenario
        assert order.opens == scenario.opens
