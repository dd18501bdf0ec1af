//! What concerns the connection alone: its protocol, name and database, and questions about commands.

use super::grammar::Family;

pub const FAMILY: Family = Family {
    home: None,
    weight: 5,
    commands: &[
        (3, "PING [<value>]"),
        (3, "ECHO <value>"),
        (4, "HELLO [2|3]"),
        (
            3,
            "HELLO (2|3|1|4|<int>) [AUTH (default|nobody) <name>] [SETNAME <name>]",
        ),
        (2, "AUTH [default|nobody] <name>"),
        (3, "CLIENT GETNAME"),
        (3, "CLIENT SETNAME <name>"),
        (1, "RESET"),
        (3, "SELECT <db>"),
        (6, "COMMAND GETKEYS <command>"),
        (4, "COMMAND GETKEYSANDFLAGS <command>"),
    ],
};
