"""Real servers and stub peers to run vpay_tasks against. vpay_tasks imports nothing from here."""
