"""A soak: the whole system as real processes, faults from one seed, and the promises asked.

    make chaos ARGS="--seconds 360 --seed 1"

schedule.py   what happens when: a pure function of the seed
town.py       everything that runs, and the wires between
processes.py, wires.py, servers.py, outside.py   the faults, each with its observed effect
producer.py, vendor.py   who makes the work, and keeps a ledger of it
run.py        faults, calm, faults, calm, drain, check; the last line is JSON
canaries.py   the secrets of it all, made to be recognised
"""
