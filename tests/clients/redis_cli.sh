#!/usr/bin/env bash
# Drives a server through redis-cli and redis-benchmark. The last line says how many checks passed.
#
#   redis_cli.sh ADDRESS, see address.js
set -uo pipefail

case $1 in
    unix:*) where=(-s "${1#unix:}") ;;
    tls:*)
        IFS=: read -r _ host port folder <<<"$1"
        where=(-h "$host" -p "$port" --tls --cacert "$folder/ca.crt" --cert "$folder/client.crt" --key "$folder/client.key")
        ;;
    *) where=(-h "${1%:*}" -p "${1##*:}") ;;
esac
passed=0 failed=0

# What the command prints is what is expected.
check() {
    local expected=$1 printed
    shift
    printed=$(timeout 60 "$@" 2>&1)
    if [[ $printed == $expected ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $*"
        echo "expected $expected"
        echo "printed  $printed"
    fi
}

cli=(redis-cli "${where[@]}")
check OK "${cli[@]}" flushall
check PONG "${cli[@]}" ping
check OK "${cli[@]}" set key value
check value "${cli[@]}" get key
check "*key*" "${cli[@]}" --scan
check "*proto*3*" "${cli[@]}" -3 hello
big=$(head -c 3000000 /dev/zero | tr '\0' x)
check OK "${cli[@]}" -x set big <<<"$big"
check "$big" "${cli[@]}" get big
check "*errors: 0, replies: 1000*" bash -c 'for i in {1..1000}; do echo "SET pipe:$i $i"; done | "$@" --pipe' - "${cli[@]}"
check 1002 "${cli[@]}" dbsize
check "*requests per second*" redis-benchmark "${where[@]}" -q -n 2000 -c 5 -P 16 -t set
echo "$passed passed, $failed failed"
((failed == 0))
