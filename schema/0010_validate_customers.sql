-- Takes no lock that a writer would wait for.
ALTER TABLE vpay.payment_intents VALIDATE CONSTRAINT intent_customer_exists;
ALTER TABLE vpay.events VALIDATE CONSTRAINT type_documented;
