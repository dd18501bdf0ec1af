//! The categories of commands, by Redis' names and in its order.

use std::sync::LazyLock;

use crate::command::{self, Command};

const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A bit for each category of each command, by the command's number.
static OF_COMMANDS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let bits_of = |command: &Command| {
        let named = command.categories();
        let known = Category::all().filter(|category| named.contains(&category.name()));
        known.fold(0, |bits, category| bits | category.bit())
    };
    command::every().map(bits_of).collect()
});

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Category(usize);

impl Category {
    pub fn all() -> impl Iterator<Item = Category> {
        (0..NAMES.len()).map(Category)
    }

    pub fn named(name: &[u8]) -> Option<Category> {
        Category::all().find(|category| name.eq_ignore_ascii_case(category.name().as_bytes()))
    }

    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }

    fn bit(self) -> u32 {
        1 << self.0
    }

    pub fn has(self, command: &Command) -> bool {
        OF_COMMANDS[command.number()] & self.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_that_a_command_shows_is_known() {
        for command in command::every() {
            for name in command.categories() {
                assert!(NAMES.contains(&name), "{}: {name}", command.full_name);
            }
        }
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(
            Category::named(b"SortedSet").map(Category::name),
            Some("sortedset")
        );
        assert_eq!(Category::named(b"all"), None);
    }
}
