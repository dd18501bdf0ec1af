"""Drives a server through what it tells redis-py unasked, over RESP2 and over RESP3: pub/sub, keyspace
events, and invalidations of what a client has cached.

Usage: python redis_py_messages.py HOST:PORT
"""

import time

from harness import check_both, connect, main, rejects, until
from redis.exceptions import ConnectionError, WatchError
from redis.keyspace_notifications import EventType, KeyspaceNotifications


def messages(subscription, count):
    """The next so many messages, without those that confirm a subscription."""
    received = []

    def take():
        message = subscription.get_message(ignore_subscribe_messages=True, timeout=0.05)
        received.extend([message] if message else [])
        return len(received) >= count

    until(take, f"{count} messages; there are {received}")
    return received


def confirmations(subscription, count):
    received = []

    def take():
        message = subscription.get_message(timeout=0.05)
        received.extend([(message["type"], message["data"])] if message else [])
        return len(received) >= count

    until(take, f"{count} confirmations; there are {received}")
    return received


# Pub/sub


@check_both
def channels_and_patterns(r, protocol):
    subscription = r.pubsub()
    subscription.subscribe("news", "other")
    subscription.psubscribe("n*")
    assert confirmations(subscription, 3) == [("subscribe", 1), ("subscribe", 2), ("psubscribe", 3)]
    assert r.publish("news", "hello") == 2
    assert r.publish("nobody", "hears") == 1
    assert r.publish("deaf", "ears") == 0
    received = messages(subscription, 3)
    assert [(m["type"], m["pattern"], m["channel"], m["data"]) for m in received] == [
        ("message", None, "news", "hello"),
        ("pmessage", "n*", "news", "hello"),
        ("pmessage", "n*", "nobody", "hears"),
    ]
    assert sorted(r.pubsub_channels()) == ["news", "other"]
    assert r.pubsub_channels("n*") == ["news"]
    assert [list(pair) for pair in r.pubsub_numsub("news", "none")] == [["news", 1], ["none", 0]]
    assert r.pubsub_numpat() == 1
    subscription.unsubscribe("news")
    subscription.punsubscribe()
    subscription.unsubscribe()
    kinds = [kind for kind, _ in confirmations(subscription, 3)]
    assert kinds == ["unsubscribe", "punsubscribe", "unsubscribe"]
    assert r.publish("news", "over") == 0
    subscription.close()


@check_both
def shards(r, protocol):
    subscription = r.pubsub()
    subscription.ssubscribe("orders")
    assert confirmations(subscription, 1) == [("ssubscribe", 1)]
    assert r.spublish("orders", "one") == 1
    assert r.publish("orders", "not for shards") == 0
    message = messages(subscription, 1)[0]
    assert (message["type"], message["channel"], message["data"]) == ("smessage", "orders", "one")
    assert r.pubsub_shardchannels() == ["orders"]
    assert [list(pair) for pair in r.pubsub_shardnumsub("orders")] == [["orders", 1]]
    subscription.sunsubscribe()
    assert confirmations(subscription, 1) == [("sunsubscribe", 0)]
    subscription.close()


@check_both
def every_message_in_order(r, protocol):
    received = []
    subscription = r.pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(**{"stream": lambda message: received.append(int(message["data"]))})
    thread = subscription.run_in_thread(sleep_time=0.01, daemon=True)
    until(lambda: r.pubsub_numsub("stream")[0][1] == 1, "the subscription is there")
    pipe = r.pipeline(transaction=False)
    for n in range(5000):
        pipe.publish("stream", n)
    assert pipe.execute() == [1] * 5000
    until(lambda: len(received) == 5000, "all messages")
    assert received == list(range(5000))
    thread.stop()
    thread.join(5)


@check_both
def a_transaction_publishes_when_it_is_done(r, protocol):
    subscription = r.pubsub()
    subscription.subscribe("news")
    confirmations(subscription, 1)
    r.pipeline().publish("news", "one").set("k", 1).publish("news", "two").execute()
    r.eval("redis.call('PUBLISH', 'news', 'three'); return redis.call('PUBLISH', 'news', 'four')", 0)
    aborted = r.pipeline()
    aborted.watch("k")
    connect().set("k", 2)
    aborted.multi()
    aborted.publish("news", "never")
    rejects(WatchError, aborted.execute)
    r.publish("news", "five")
    assert [m["data"] for m in messages(subscription, 5)] == ["one", "two", "three", "four", "five"]
    subscription.close()


@check_both
def a_lost_subscription_is_made_again(r, protocol):
    own = connect(protocol=protocol, client_name="subscriber")
    subscription = own.pubsub()
    subscription.subscribe("news")
    subscription.psubscribe("n*")
    confirmations(subscription, 2)
    [subscriber] = [c for c in r.client_list(_type="pubsub") if c["name"] == "subscriber"]
    assert r.client_kill_filter(_id=subscriber["id"]) == 1

    def back():
        try:
            subscription.get_message(timeout=0.02)
        except ConnectionError:
            return False
        return r.pubsub_numsub("news")[0][1] == 1 and r.pubsub_numpat() == 1

    until(back, "both subscriptions are there again")
    r.publish("news", "again")
    assert {m["type"] for m in messages(subscription, 2)} == {"message", "pmessage"}
    subscription.close()


# Keyspace events


def with_events(r, classes, use):
    before = r.config_get("notify-keyspace-events")["notify-keyspace-events"]
    r.config_set("notify-keyspace-events", classes)
    try:
        use()
    finally:
        r.config_set("notify-keyspace-events", before)


@check_both
def keyspace_events(r, protocol):
    def events():
        subscription = r.pubsub()
        subscription.psubscribe("__key*__:*")
        confirmations(subscription, 1)
        r.set("k", 1)
        r.expire("k", 100)
        r.pipeline().lpush("l", 1).rename("l", "m").execute()
        r.eval("redis.call('HSET', KEYS[1], 'f', 1)", 1, "h")
        r.delete("m", "none")
        r.set("brief", 1, px=20)
        expected = [
            ("__keyspace@0__:k", "set"),
            ("__keyevent@0__:set", "k"),
            ("__keyspace@0__:k", "expire"),
            ("__keyevent@0__:expire", "k"),
            ("__keyspace@0__:l", "lpush"),
            ("__keyevent@0__:lpush", "l"),
            ("__keyspace@0__:l", "rename_from"),
            ("__keyevent@0__:rename_from", "l"),
            ("__keyspace@0__:m", "rename_to"),
            ("__keyevent@0__:rename_to", "m"),
            ("__keyspace@0__:h", "hset"),
            ("__keyevent@0__:hset", "h"),
            ("__keyspace@0__:m", "del"),
            ("__keyevent@0__:del", "m"),
            ("__keyspace@0__:brief", "set"),
            ("__keyevent@0__:set", "brief"),
            ("__keyspace@0__:brief", "expire"),
            ("__keyevent@0__:expire", "brief"),
            ("__keyspace@0__:brief", "expired"),
            ("__keyevent@0__:expired", "brief"),
        ]
        assert [(m["channel"], m["data"]) for m in messages(subscription, len(expected))] == expected
        subscription.close()

    with_events(r, "KEA", events)


@check_both
def keyspace_events_by_their_own_class(r, protocol):
    def events():
        notified = []
        notifications = KeyspaceNotifications(connect(protocol=protocol))
        notifications.subscribe_keyevent(EventType.EXPIRED, handler=notified.append)
        thread = notifications.run_in_thread(daemon=True)
        subscribed = lambda: r.pubsub_numsub("__keyevent@0__:expired")[0][1] == 1  # noqa: E731
        try:
            until(subscribed, "the subscription is there")
            for n in range(20):
                r.set(f"session:{n}", 1, px=20 + n)
            until(lambda: len(notified) == 20, "all sessions expire")
        finally:
            thread.stop()
            thread.join(5)
        assert {n.key for n in notified} == {f"session:{n}" for n in range(20)}
        assert {n.event_type for n in notified} == {"expired"}

    with_events(r, "Ex", events)


# Client-side caching


@check_both
def a_cache_is_told_what_changes(r, protocol):
    if protocol == 2:
        return  # push messages are RESP3's
    own = connect(protocol=3, single_connection_client=True)
    dropped = []
    # redis-py's own cache wants a server of version 7.4; this is the hook that it hangs on.
    own.connection._parser.set_invalidation_push_handler(lambda push: dropped.append(push[1]))

    def hears_of(change, keys):
        own.mget("k", "l", "h")
        dropped.clear()
        change()
        until(lambda: own.ping() and len(dropped) >= len(keys), "an invalidation")
        # In which order a command is heard to have changed several keys is up to the server.
        assert sorted(dropped, key=str) == sorted(keys, key=str), dropped

    own.client_tracking_on()
    hears_of(lambda: r.set("k", "new"), [["k"]])
    hears_of(lambda: r.pipeline().set("k", 1).rpush("l", 1).execute(), [["k"], ["l"]])
    hears_of(lambda: r.eval("redis.call('SET', KEYS[1], 'new')", 1, "k"), [["k"]])
    hears_of(lambda: r.rename("k", "h"), [["k"], ["h"]])
    hears_of(lambda: r.set("k", "brief", px=30), [["k"]])
    hears_of(lambda: time.sleep(0.2), [["k"]])
    hears_of(lambda: r.flushdb(), [None])
    own.client_tracking_off()
    own.client_tracking_on(bcast=True, prefix=["user:", "k"], noloop=True)
    own.set("k", "by itself")
    hears_of(lambda: r.mset({"user:1": 1, "other": 2}), [["user:1"]])
    own.close()


@check_both
def invalidations_are_redirected(r, protocol):
    listener = connect(protocol=2, single_connection_client=True)
    number = listener.client_id()
    subscription = listener.pubsub()
    subscription.subscribe("__redis__:invalidate")
    confirmations(subscription, 1)
    target = next(c["id"] for c in r.client_list(_type="pubsub"))
    tracked = connect(protocol=protocol, single_connection_client=True)
    assert tracked.client_tracking_on(clientid=int(target))
    assert tracked.client_getredir() == int(target)
    r.mset({"k1": 1, "k2": 2})
    assert tracked.mget("k1", "k2") == ["1", "2"]
    r.set("k1", 3)
    assert messages(subscription, 1)[0]["data"] == ["k1"]
    r.set("k1", 4)  # nobody has read it since
    r.set("k2", 4)
    assert messages(subscription, 1)[0]["data"] == ["k2"]
    assert tracked.client_tracking_off()
    assert tracked.client_getredir() == -1
    assert number != int(target)
    subscription.close()


if __name__ == "__main__":
    main(seconds=60)
