//! Commands as data: each line of a family's table is a grammar for one command.
//!
//! ```text
//! SET <key> <value> [NX|XX] [GET] [EX <ttl>|KEEPTTL]
//! ```
//!
//! `<slot>` is an argument drawn at random, `[a|b]` one of several options or none, `(a|b)` one of
//! them, and `+` repeats what stands before it. Expanding a line draws all of that, and now and then
//! does what no client library would: shuffles and repeats options, and spells words in odd case.

use fastrand::Rng;

use super::draw::{Draw, Mood, Slot};

/// The words of one command, its name first.
pub type Argv = Vec<Vec<u8>>;

/// The commands of one data type.
pub struct Family {
    /// The initial of the keys on which this type usually lives, so that most commands meet it.
    pub home: Option<char>,
    /// How often the family has its turn, relative to the others.
    pub weight: usize,
    /// Each command with its own weight.
    pub commands: &'static [(usize, &'static str)],
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Word(&'static str),
    Slot(Slot),
    Optional(Vec<Sequence>),
    Choice(Vec<Sequence>),
    Repeat(Box<Node>),
}

type Sequence = Vec<Node>;

/// All families, parsed, with a die for the families and one for the commands of each.
pub struct Grammar {
    turns: Vec<usize>,
    families: Vec<Parsed>,
}

struct Parsed {
    home: Option<char>,
    turns: Vec<usize>,
    commands: Vec<Sequence>,
}

impl Grammar {
    pub fn new(families: &[&'static Family]) -> Grammar {
        let parsed = families.iter().map(|family| Parsed {
            home: family.home,
            turns: die(family.commands.iter().map(|(weight, _)| *weight)),
            commands: family
                .commands
                .iter()
                .map(|(_, line)| parse(line))
                .collect(),
        });
        Grammar {
            turns: die(families.iter().map(|family| family.weight)),
            families: parsed.collect(),
        }
    }

    /// A random command, well-formed but for what its slots may bring.
    pub fn command(&self, rng: &mut Rng, mood: Mood) -> Argv {
        self.command_at(rng, mood, 0)
    }

    fn command_at(&self, rng: &mut Rng, mood: Mood, depth: usize) -> Argv {
        let family = &self.families[roll(&self.turns, rng)];
        let line = &family.commands[roll(&family.turns, rng)];
        let mut argv = Vec::new();
        let mut expansion = Expansion {
            grammar: self,
            depth,
            draw: Draw::new(rng, mood, family.home),
            argv: &mut argv,
        };
        expansion.sequence(line);
        argv
    }

    /// The name of every command that the grammar can produce.
    pub fn names(&self) -> Vec<&'static str> {
        let lines = self.families.iter().flat_map(|family| &family.commands);
        let names = lines.filter_map(|line| match line.first() {
            Some(Node::Word(name)) => Some(*name),
            _ => None,
        });
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Faces of a die: each index as often as its weight says.
fn die(weights: impl Iterator<Item = usize>) -> Vec<usize> {
    let faces = weights
        .enumerate()
        .flat_map(|(index, weight)| std::iter::repeat_n(index, weight));
    faces.collect()
}

fn roll(die: &[usize], rng: &mut Rng) -> usize {
    die[rng.usize(..die.len())]
}

struct Expansion<'a> {
    grammar: &'a Grammar,
    /// `COMMAND GETKEYS COMMAND GETKEYS ...` has to end somewhere.
    depth: usize,
    draw: Draw<'a>,
    argv: &'a mut Argv,
}

impl Expansion<'_> {
    fn sequence(&mut self, nodes: &[Node]) {
        let mut rest = nodes;
        while let Some((node, after)) = rest.split_first() {
            if matches!(node, Node::Optional(_)) {
                let run = rest.iter().take_while(|n| matches!(n, Node::Optional(_)));
                let (options, after) = rest.split_at(run.count());
                self.options(options);
                rest = after;
            } else {
                self.node(node);
                rest = after;
            }
        }
    }

    /// Neighbouring options may stand in any order.
    fn options(&mut self, options: &[Node]) {
        let mut chosen: Vec<&Node> = Vec::new();
        for option in options {
            if self.draw.chance(2, 5) {
                chosen.push(option);
                if self.draw.chance(1, 30) {
                    chosen.push(option);
                }
            }
        }
        if self.draw.chance(1, 3) {
            self.draw.rng.shuffle(&mut chosen);
        }
        for option in chosen {
            self.node(option);
        }
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Word(word) => {
                let word = self.draw.in_some_case(word);
                self.argv.push(word);
            }
            Node::Slot(Slot::Command) => self.nested_command(),
            Node::Slot(slot) => self.draw.fill(*slot, self.argv),
            Node::Optional(alternatives) | Node::Choice(alternatives) => {
                let chosen = self.draw.rng.usize(..alternatives.len());
                self.sequence(&alternatives[chosen]);
            }
            Node::Repeat(repeated) => self.repeat(repeated),
        }
    }

    fn repeat(&mut self, repeated: &Node) {
        let times = self.draw.repetitions();
        self.draw.crowded = times > 4;
        for _ in 0..times {
            self.node(repeated);
        }
        self.draw.crowded = false;
    }

    fn nested_command(&mut self) {
        if self.depth < 2 {
            let mood = self.draw.mood;
            let nested = self.grammar.command_at(self.draw.rng, mood, self.depth + 1);
            self.argv.extend(nested);
        }
    }
}

/// Parses a line of the tables above; panics at a mistake in it, which no test run can miss.
fn parse(line: &'static str) -> Sequence {
    let mut parser = Parser { line, rest: line };
    let sequence = parser.sequence();
    assert!(parser.rest.is_empty(), "unbalanced bracket: {line}");
    sequence
}

struct Parser {
    line: &'static str,
    rest: &'static str,
}

impl Parser {
    /// Up to the end, or to the bracket or bar that ends this alternative.
    fn sequence(&mut self) -> Sequence {
        let mut nodes = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.bytes().next() {
                None | Some(b'|' | b']' | b')') => return nodes,
                Some(b'+') => {
                    self.rest = &self.rest[1..];
                    let repeated = nodes.pop().expect("something to repeat before '+'");
                    nodes.push(Node::Repeat(Box::new(repeated)));
                }
                Some(b'[') => nodes.push(Node::Optional(self.alternatives(']'))),
                Some(b'(') => nodes.push(Node::Choice(self.alternatives(')'))),
                Some(b'<') => nodes.push(Node::Slot(self.slot())),
                Some(_) => nodes.push(Node::Word(self.word())),
            }
        }
    }

    fn alternatives(&mut self, close: char) -> Vec<Sequence> {
        let mut alternatives = Vec::new();
        loop {
            self.rest = &self.rest[1..];
            alternatives.push(self.sequence());
            match self.rest.chars().next() {
                Some('|') => {}
                Some(found) if found == close => break,
                _ => panic!("no '{close}': {}", self.line),
            }
        }
        self.rest = &self.rest[1..];
        alternatives
    }

    fn slot(&mut self) -> Slot {
        let (name, rest) = self.rest[1..]
            .split_once('>')
            .unwrap_or_else(|| panic!("no '>': {}", self.line));
        self.rest = rest;
        Slot::named(name).unwrap_or_else(|| panic!("no slot <{name}>: {}", self.line))
    }

    fn word(&mut self) -> &'static str {
        let end = self.rest.find(|c: char| " |[]()<>+".contains(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        assert!(!word.is_empty(), "a stray sign: {}", self.line);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_parses_into_what_it_says() {
        let option = |word| vec![Node::Word(word)];
        assert_eq!(
            parse("SET <key> [NX|EX <ttl>] (<field> <value>)+"),
            [
                Node::Word("SET"),
                Node::Slot(Slot::Key),
                Node::Optional(vec![
                    option("NX"),
                    vec![Node::Word("EX"), Node::Slot(Slot::Ttl)]
                ]),
                Node::Repeat(Box::new(Node::Choice(vec![vec![
                    Node::Slot(Slot::Field),
                    Node::Slot(Slot::Value)
                ]]))),
            ]
        );
    }

    #[test]
    #[should_panic(expected = "unbalanced bracket")]
    fn a_stray_bracket_is_noticed() {
        parse("GET <key>]");
    }

    #[test]
    #[should_panic(expected = "no slot <kee>")]
    fn a_misspelt_slot_is_noticed() {
        parse("GET <kee>");
    }
}
