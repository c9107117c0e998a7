#!/usr/bin/env bash
# Three hosts of their own network on this machine: NAME-s at 10.77.0.1, and NAME-1 and NAME-2 at 10.77.0.11 and .12.
#   hosts.sh up NAME          make them
#   hosts.sh cut NAME 2       unplug host 2;  hosts.sh mend NAME 2  plugs it in again
#   hosts.sh down NAME        remove them
set -euo pipefail
action=${1:?up, cut, mend or down} name=${2:?name} host=${3:-}

up() {
    ip netns add "$name-s"
    ip -n "$name-s" link set lo up
    ip -n "$name-s" link add bridge type bridge
    ip -n "$name-s" address add 10.77.0.1/24 dev bridge
    ip -n "$name-s" link set bridge up
    for i in 1 2; do
        ip netns add "$name-$i"
        ip -n "$name-$i" link set lo up
        ip link add "port$i" netns "$name-s" type veth peer name eth0 netns "$name-$i"
        ip -n "$name-s" link set "port$i" master bridge up
        ip -n "$name-$i" address add "10.77.0.1$i/24" dev eth0
        ip -n "$name-$i" link set eth0 up
    done
}

cut() { ip -n "$name-s" link set "port$host" down; }
mend() { ip -n "$name-s" link set "port$host" up; }
down() { for i in s 1 2; do ip netns delete "$name-$i" 2>/dev/null || true; done; }

"$action"
