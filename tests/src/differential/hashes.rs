//! Hashes: fields set, counted, picked at random and walked.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('h'),
    weight: 15,
    commands: &[
        (10, "HSET <key> (<field> <value>)+"),
        (3, "HSET <key> <field> <int>"),
        (2, "HSET <key> <field> <float>"),
        (3, "HSETNX <key> <field> <value>"),
        (2, "HMSET <key> (<field> <value>)+"),
        (4, "HGET <key> <field>"),
        (3, "HMGET <key> <field>+"),
        (4, "HGETALL <key>"),
        (5, "HDEL <key> <field>+"),
        (2, "HEXISTS <key> <field>"),
        (2, "HKEYS <key>"),
        (2, "HVALS <key>"),
        (3, "HLEN <key>"),
        (2, "HSTRLEN <key> <field>"),
        (4, "HINCRBY <key> <field> <int>"),
        (4, "HINCRBYFLOAT <key> <field> <float>"),
        (1, "HRANDFIELD <key>"),
        (3, "HRANDFIELD <key> <pick> [WITHVALUES]"),
        (3, "HSCAN <key> <cursor> [MATCH <pattern>] [COUNT <count>]"),
    ],
};
