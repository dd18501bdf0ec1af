//! Positions on the earth: sorted sets, so that ZADD and its like meet them too.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: Some('g'),
    weight: 10,
    commands: &[
        (8, "GEOADD <key> (<longitude> <latitude> <member>)+"),
        (
            4,
            "GEOADD <key> [NX|XX] [CH] (<longitude> <latitude> <member>)+",
        ),
        (2, "GEOPOS <key> <member>+"),
        (2, "GEOHASH <key> <member>+"),
        (3, "GEODIST <key> <member> <member> [M|KM|FT|MI]"),
        (
            4,
            "GEOSEARCH <key> FROMLONLAT <longitude> <latitude> BYRADIUS <radius> (M|KM|FT|MI) [ASC|DESC] \
             [COUNT <count>|COUNT <count> ANY] [WITHCOORD] [WITHDIST] [WITHHASH]",
        ),
        (
            3,
            "GEOSEARCH <key> FROMLONLAT <longitude> <latitude> BYBOX <radius> <radius> (M|KM|FT|MI) [ASC|DESC] \
             [COUNT <count>|COUNT <count> ANY] [WITHCOORD] [WITHDIST] [WITHHASH]",
        ),
        (
            2,
            "GEOSEARCH <key> [FROMMEMBER <member>] [FROMLONLAT <longitude> <latitude>] [BYRADIUS <radius> KM] \
             [BYBOX <radius> <radius> KM] [ASC|DESC] [COUNT <count>|ANY] [WITHDIST]",
        ),
        (
            3,
            "GEOSEARCHSTORE <key> <key> (FROMMEMBER <member>|FROMLONLAT <longitude> <latitude>) \
             (BYRADIUS <radius>|BYBOX <radius> <radius>) (M|KM|FT|MI) [ASC|DESC] \
             [COUNT <count>|COUNT <count> ANY] [STOREDIST]",
        ),
        (
            3,
            "GEORADIUS <key> <longitude> <latitude> <radius> (M|KM|FT|MI) [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT <count>|COUNT <count> ANY] [ASC|DESC]",
        ),
        (
            2,
            "GEORADIUS <key> <longitude> <latitude> <radius> (M|KM|FT|MI) [COUNT <count>] [ASC|DESC] \
             [STORE <key>|STOREDIST <key>]",
        ),
        (
            1,
            "GEORADIUS_RO <key> <longitude> <latitude> <radius> (M|KM|FT|MI) [WITHDIST] [COUNT <count>] [ASC|DESC]",
        ),
        (
            3,
            "GEORADIUSBYMEMBER <key> <member> <radius> (M|KM|FT|MI) [WITHCOORD] [WITHDIST] [COUNT <count>] \
             [ASC|DESC] [STORE <key>|STOREDIST <key>]",
        ),
        (
            1,
            "GEORADIUSBYMEMBER_RO <key> <member> <radius> (M|KM|FT|MI) [WITHHASH] [COUNT <count>] [ASC|DESC]",
        ),
        (2, "ZREM <key> <member>+"),
        (1, "ZADD <key> (<score> <member>)+"),
    ],
};
