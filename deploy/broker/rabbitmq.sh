#!/bin/sh
# The rights of our users in RabbitMQ's vhost "/": on what they may configure, write and read.
# Publishing goes through the default exchange; whoever declares a queue configures it. Make the
# users first, each with a password of its own: rabbitmqctl add_user vpay_worker
set -eu
rabbitmqctl set_permissions vpay_dispatcher '^vpay:' '^amq\.default$' '^$'
rabbitmqctl set_permissions vpay_worker '^vpay:' '^$' '^vpay:'
rabbitmqctl set_permissions vpay_operator '^vpay:' '^$' '^$'
