"""`vpay-tasks doctor`: facts.py asks the servers, findings.py decides what is wrong (pure),
report.py tells it."""
