# Sourced by the scripts that drive a server through packages which people really use: clients/run and
# apps/run. They set `here`, their directory, and `cache`, where their packages are installed.
#
#   run             starts Cairn ($CAIRN_BIN, or the release build) on a free port
#   run --redis     starts redis-server instead, to check the checks
#   CAIRN_TEST_ADDR=host:port run    uses a server that runs already
#
# Packages are installed once, in the versions pinned beside the script, under the user's cache directory.

server=

end() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    [[ -z $server ]] || wait "$server" 2>/dev/null || true
    [[ -z ${scratch-} ]] || rm -rf "$scratch"
}
trap end EXIT

# Runs the installation only when what it installs has changed.
once() {
    local stamp=$cache/$1.stamp source=$2
    shift 2
    cmp -s "$source" "$stamp" && return
    "$@"
    cp "$source" "$stamp"
}

# An environment of Python's, of that name, with what the file lists.
install_python() {
    local environment=$cache/$1 requirements=$2
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
}

install_node() {
    mkdir -p "$cache/node"
    cp "$here/package.json" "$here/package-lock.json" "$cache/node/"
    npm --prefix "$cache/node" ci --loglevel=error --no-audit --no-fund
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# A script may have a function `more_ways_in` that sets `flags`, given a directory for what they need.
start() {
    local port limit=300 flags=()
    scratch=$(mktemp -d)
    port=$(free_port)
    ! declare -F more_ways_in >/dev/null || more_ways_in "$scratch"
    mkdir "$scratch/data"
    : >"$scratch/log"
    "$@" --port "$port" --dir "$scratch/data" "${flags[@]}" >"$scratch/log" 2>&1 &
    server=$!
    until grep -qi "ready to accept connections" "$scratch/log"; do
        if ! kill -0 "$server" 2>/dev/null || ((limit-- == 0)); then
            cat "$scratch/log" >&2
            echo "the server does not start" >&2
            exit 1
        fi
        sleep 0.1
    done
    addr=127.0.0.1:$port
}

# Sets `addr` to the server that the arguments and the environment ask for.
choose_server() {
    if [[ -n ${CAIRN_TEST_ADDR-} ]]; then
        addr=$CAIRN_TEST_ADDR
    elif [[ ${1-} == --redis ]]; then
        start redis-server --save ""
    else
        start "${CAIRN_BIN:-$here/../../target/release/cairn}" serve
    fi
}

passed=0 failed=0

# Shows what a program says, and adds up its closing line.
drive() {
    local name=$1 said
    shift
    said=$("$@" 2>&1) || true
    echo "$name"
    sed 's/^/    /' <<<"$said"
    if [[ ${said##*$'\n'} =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    else
        failed=$((failed + 1))
    fi
}

# The last line, and whether all went well.
conclude() {
    ((failed == 0)) || [[ -z ${scratch-} ]] || tail -n 40 "$scratch/log"
    echo "$passed passed, $failed failed"
    ((failed == 0))
}
