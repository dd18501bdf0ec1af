//! Which commands may be run: a bit for each command and subcommand of the table, by its number.

use std::collections::BTreeMap;

use super::category::Category;
use crate::command::{self, Args, Command};

const WORD: usize = u64::BITS as usize;

/// A set of commands, and of commands with certain first arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commands {
    bits: Vec<u64>,
    /// Whether it was made by taking away from everything: commands of a later version are in it as well.
    is_open: bool,
    /// First arguments with which a command may be run that is not in the set, by its number.
    first_args: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Commands {
    pub fn none() -> Commands {
        Commands {
            bits: vec![0; command::count().div_ceil(WORD)],
            is_open: false,
            first_args: BTreeMap::new(),
        }
    }

    pub fn all() -> Commands {
        let mut all = Commands::none();
        (0..command::count()).for_each(|number| all.put(number, true));
        all.is_open = true;
        all
    }

    pub fn is_all(&self) -> bool {
        (0..command::count()).all(|number| self.has(number))
    }

    fn has(&self, number: usize) -> bool {
        self.bits[number / WORD] & (1 << (number % WORD)) != 0
    }

    fn put(&mut self, number: usize, allow: bool) {
        let bit = 1 << (number % WORD);
        match allow {
            true => self.bits[number / WORD] |= bit,
            false => self.bits[number / WORD] &= !bit,
        }
    }

    /// Whether a call is allowed, as far as the command goes.
    pub fn allows(&self, command: &Command, args: &Args<'_>) -> bool {
        if self.has(command.number()) {
            return true;
        }
        let Some(first) = args.get(1) else {
            return false;
        };
        let allowed = self.first_args.get(&command.number());
        allowed.is_some_and(|allowed| allowed.iter().any(|word| word.eq_ignore_ascii_case(first)))
    }

    /// A container stands for its subcommands too.
    pub fn set(&mut self, command: &Command, allow: bool) {
        self.put(command.number(), allow);
        self.first_args.remove(&command.number());
        for subcommand in command.shown_subcommands() {
            self.put(subcommand.number(), allow);
        }
    }

    pub fn set_category(&mut self, category: Category, allow: bool) {
        for command in command::every().filter(|command| category.has(command)) {
            self.set(command, allow);
        }
    }

    pub fn allow_first_arg(&mut self, command: &Command, word: &[u8]) {
        let words = self.first_args.entry(command.number()).or_default();
        if !words.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            words.push(word.to_vec());
        }
    }

    /// Rules that make this set. First all or nothing, then the categories that fit best, one after the other, and
    /// then what is still wrong, command by command.
    pub fn describe(&self) -> Vec<u8> {
        let (mut told, mut rules) = if self.is_open {
            (Commands::all(), vec![b"+@all".to_vec()])
        } else {
            (Commands::none(), vec![b"-@all".to_vec()])
        };
        let adds = !self.is_open;
        let sign = if adds { '+' } else { '-' };
        let mut left = self.clone();
        let mut unused: Vec<Category> = Category::all().collect();
        while let Some(best) = left.best_category(&unused, adds) {
            told.set_category(best, adds);
            left.set_category(best, !adds);
            unused.retain(|category| *category != best);
            rules.push(format!("{sign}@{}", best.name()).into_bytes());
        }
        for command in command::all() {
            self.tell(command, &mut told, &mut rules);
            for subcommand in command.shown_subcommands() {
                self.tell(subcommand, &mut told, &mut rules);
            }
            if !self.has(command.number()) {
                for word in self.first_args.get(&command.number()).into_iter().flatten() {
                    let rule: [&[u8]; 4] = [b"+", command.full_name.as_bytes(), b"|", word];
                    rules.push(rule.concat());
                }
            }
        }
        rules.join(&b' ')
    }

    fn tell(&self, command: &Command, told: &mut Commands, rules: &mut Vec<Vec<u8>>) {
        let is_allowed = self.has(command.number());
        if is_allowed != told.has(command.number()) {
            let sign = if is_allowed { '+' } else { '-' };
            rules.push(format!("{sign}{}", command.full_name).into_bytes());
            told.set(command, is_allowed);
        }
    }

    /// The category most of whose commands are as they should be; among several, that with the fewest others, and
    /// then the largest.
    fn best_category(&self, unused: &[Category], adds: bool) -> Option<Category> {
        let mut best: Option<(usize, usize, Category)> = None;
        for category in unused {
            let members = command::every().filter(|command| category.has(command));
            let (mut same, mut different) = (0, 0);
            for member in members {
                match self.has(member.number()) == adds {
                    true => same += 1,
                    false => different += 1,
                }
            }
            let is_better = best.is_none_or(|(least, most, _)| {
                different < least || (different == least && same > most)
            });
            if same > different && is_better {
                best = Some((different, same, *category));
            }
        }
        best.map(|(_, _, category)| category)
    }
}
