"""What the checks of redis-py share: how to reach the server, and how they are run."""

import traceback

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ONCE = Retry(NoBackoff(), 0)

CHECKS = []
WHERE = {}


def check(function):
    """Registers a function that takes a client and its protocol, and asserts."""
    CHECKS.append(function)
    return function


def rejects(error, call, *args, **kwargs):
    """The error that the call must end with."""
    try:
        reply = call(*args, **kwargs)
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} expected, got {reply!r}")


def connect(protocol, **options):
    options.setdefault("decode_responses", True)
    return redis.Redis(**WHERE, protocol=protocol, socket_timeout=20, **options)


def parse(address):
    """What redis.Redis wants to know of an address."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return {"unix_socket_path": rest}
    if kind == "tls":
        host, port, folder = rest.split(":")
        return {
            "host": host,
            "port": int(port),
            "ssl": True,
            "ssl_ca_certs": f"{folder}/ca.crt",
            "ssl_certfile": f"{folder}/client.crt",
            "ssl_keyfile": f"{folder}/client.key",
        }
    host, _, port = address.rpartition(":")
    return {"host": host, "port": int(port)}


def run(address):
    """Runs every check on an empty database, once per protocol."""
    WHERE.update(parse(address))
    passed, failed = 0, 0
    for protocol in (2, 3):
        client = connect(protocol)
        for function in CHECKS:
            name = f"{function.__name__}, RESP{protocol}"
            try:
                client.flushall()
                function(client, protocol)
                passed += 1
            except Exception:  # an assertion, or whatever the client raises
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
