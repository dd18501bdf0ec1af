#!/usr/bin/env bash
# Drives a cluster through one redis-cli -c while a node dies. The last line says how many checks passed.
#
#   redis_cli_cluster.sh PID ADDRESS...: the process of the first node, which is killed, and where all nodes are
set -uo pipefail

victim=$1 first=$2 second=$3
passed=0 failed=0

judge() {
    if [[ $2 == $3 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        echo "expected $3"
        echo "printed  $2"
    fi
}

# Line by line, as a terminal would get it.
coproc client { exec stdbuf -oL redis-cli -c -h "${second%:*}" -p "${second##*:}" 2>&1; }

# The last line of what it answers; where it was sent on the way comes before.
ask() {
    local line="" last=""
    echo "$*" >&"${client[1]}"
    echo "ECHO end-of-answer" >&"${client[1]}"
    while read -r -t 10 line <&"${client[0]}"; do
        case $line in
            end-of-answer) break ;;
            "-> Redirected"* | "") ;;
            *) last=$line ;;
        esac
    done
    echo "$last"
}

wrong=0
for n in {0..99}; do
    [[ $(ask SET "key:$n" "$n") == OK ]] || wrong=$((wrong + 1))
done
for n in {0..99}; do
    [[ $(ask GET "key:$n") == "$n" ]] || wrong=$((wrong + 1))
done
judge "keys of all nodes" "$wrong" 0
judge "cluster info" "$(redis-cli --cluster info "$second" 2>&1)" "*100 keys in 3 masters.*keys per slot on average.*"
judge "cluster check" "$(redis-cli --cluster check "$second" 2>&1)" "*All 16384 slots covered.*"

# Wherever it stands, it stays connected to that node: not to the one that dies.
for n in {0..99}; do
    ask GET "key:$n" >/dev/null
    [[ $(ask CONFIG GET port) == "${first##*:}" ]] || break
done
kill -9 "$victim"
# It goes wherever it is sent and does not come back from a node that is dead, so somebody else tries first.
fresh() { timeout 5 redis-cli -c -h "${second%:*}" -p "${second##*:}" "$@" 2>&1; }
deadline=$((SECONDS + 20))
for n in {0..99}; do
    until [[ $(fresh SET "key:$n" fresh) == OK ]] || ((SECONDS > deadline)); do sleep 0.1; done
done
right=0
for n in {0..99}; do
    [[ $(ask SET "key:$n" "again-$n") != OK ]] || right=$((right + 1))
done
judge "writes after the death of a node" "$right" 100
wrong=0
for n in {0..99}; do
    [[ $(ask GET "key:$n") == "again-$n" ]] || wrong=$((wrong + 1))
done
judge "reads after the death of a node" "$wrong" 0
echo "$passed passed, $failed failed"
((failed == 0))
