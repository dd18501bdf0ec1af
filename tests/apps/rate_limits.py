"""Drives a server through the rate limiters of `limits`.

Usage: python rate_limits.py HOST:PORT

Each strategy decides by a script; a wrong decision lets too many or too few through.
"""

import time

from harness import at_once, check, main, until, url
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

STRATEGIES = (FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter)


def limiter(strategy):
    return strategy(storage_from_string(url()))


@check
def as_many_as_allowed_whoever_asks(r):
    limit = RateLimitItemPerMinute(50)
    for strategy in STRATEGIES:
        r.flushall()

        def ask(number):
            own = limiter(strategy)
            return sum(own.hit(limit, "user") for _ in range(20))

        assert sum(at_once(8, ask)) == 50, strategy.__name__
        own = limiter(strategy)
        assert own.hit(limit, "user") is False and own.test(limit, "user") is False
        assert own.hit(limit, "other") is True and own.test(limit, "other") is True


@check
def what_remains_is_told(r):
    limit = RateLimitItemPerMinute(10)
    for strategy in STRATEGIES:
        r.flushall()
        own = limiter(strategy)
        assert own.get_window_stats(limit, "user").remaining == 10
        assert own.hit(limit, "user", cost=3) is True
        assert own.get_window_stats(limit, "user").remaining == 7, strategy.__name__
        assert own.hit(limit, "user", cost=8) is False
        own.clear(limit, "user")
        assert own.hit(limit, "user", cost=8) is True


@check
def windows_move_on(r):
    limit = RateLimitItemPerSecond(5)
    own = limiter(MovingWindowRateLimiter)
    began = time.monotonic()
    admitted = []
    while time.monotonic() < began + 2.5:
        if own.hit(limit, "user"):
            admitted.append(time.monotonic())
        time.sleep(0.005)
    # At no moment are there more than five in the second before it.
    for first, sixth in zip(admitted, admitted[5:]):
        assert sixth - first >= 0.99, admitted
    assert 13 <= len(admitted) <= 15, len(admitted)


@check
def everything_expires(r):
    limit = RateLimitItemPerSecond(5)
    for strategy in STRATEGIES:
        limiter(strategy).hit(limit, strategy.__name__)
    assert r.dbsize() > 0
    until(lambda: r.keys("*") == [], "nothing is left")


if __name__ == "__main__":
    main(seconds=60)
