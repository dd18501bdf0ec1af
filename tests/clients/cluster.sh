# Sourced by run: a cluster of the server under test, and its clients while the node that they came by dies.

cluster_pids=() cluster_ports=()

end_cluster() {
    local pid
    for pid in "${cluster_pids[@]}"; do
        kill -9 "$pid" 2>/dev/null || true
        while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    done
    cluster_pids=()
}

# A port whose neighbour ten thousand higher, where nodes talk, is free too.
cluster_port() {
    python3 - <<'END'
import random, socket

def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0

print(next(port for port in iter(lambda: random.randrange(12000, 22000), None) if is_free(port) and is_free(port + 10000)))
END
}

# Starts so many nodes, each by the command that follows.
start_nodes() {
    local count=$1 node port
    shift
    cluster_pids=() cluster_ports=()
    for ((node = 0; node < count; node++)); do
        port=$(cluster_port)
        mkdir -p "$cluster_dir/$port"
        : >"$cluster_dir/$port.log"
        "$@" --port "$port" --dir "$cluster_dir/$port" >"$cluster_dir/$port.log" 2>&1 &
        cluster_pids+=($!)
        # Nobody has to be told how it ends.
        disown $!
        cluster_ports+=("$port")
        timeout 30 bash -c "until grep -qi 'ready to accept connections' '$cluster_dir/$port.log'; do sleep 0.1; done"
    done
}

# How many nodes clients hear of.
leaders() {
    redis-cli -p "${cluster_ports[0]}" CLUSTER SLOTS | grep -xF -f <(printf '%s\n' "${cluster_ports[@]}") | sort -u | wc -l
}

# Of three nodes that may fail: Cairn's three, or three masters of Redis with a replica each.
start_cluster() {
    local addresses
    cluster_dir=$(mktemp -d)
    if [[ ${1-} == --redis ]]; then
        start_nodes 6 redis-server --save "" --cluster-enabled yes --cluster-node-timeout 1000
        addresses=("${cluster_ports[@]/#/127.0.0.1:}")
        redis-cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes >/dev/null 2>&1
        # Until then a replica has never heard of its master, and does not take over.
        sleep 5
    else
        local binary=${CAIRN_BIN:-$here/../../target/release/cairn}
        start_nodes 3 "$binary" serve --cluster-enabled yes
        addresses=("${cluster_ports[@]/#/127.0.0.1:}")
        "$binary" cluster init --nodes "$(IFS=,; echo "${addresses[*]}")" >/dev/null 2>&1
        # Clients hear of nodes that lead something, and the first node leads everything at first.
        local limit=300
        until (($(leaders) == 3 || limit-- == 0)); do sleep 0.2; done
    fi
    cluster="${addresses[*]}"
}

# Each client has a cluster of its own, of which it kills the first node.
drive_cluster() {
    local name=$1 kind=$2
    shift 2
    start_cluster "$kind"
    # shellcheck disable=SC2086 # a list of addresses
    drive "$name, cluster" "$@" "${cluster_pids[0]}" $cluster
    end_cluster
    rm -rf "$cluster_dir"
}
