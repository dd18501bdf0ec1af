//! What a run found, in a form that can be typed into redis-cli and run again from its seed.

use std::fmt;
use std::time::Duration;

use super::ROUND;
use super::duel::{Difference, Tallies};
use super::fair::name_of;
use super::round::Step;
use crate::value::Value;

/// How much of a reply is shown around the place where it differs.
const WINDOW: usize = 300;
/// Arguments beyond this length are abbreviated.
const LONG: usize = 120;

/// A difference, and the shortest sequence known to produce it.
#[derive(Debug)]
pub struct Finding {
    /// The seed of the round it showed in.
    pub seed: u64,
    pub difference: Difference,
    pub steps: Vec<Step>,
    /// How many commands of the round led to it before shrinking.
    pub shrunk_from: usize,
    /// False if the same commands did not lead to a difference again.
    pub reproduced: bool,
}

#[derive(Debug, Default)]
pub struct Report {
    pub elapsed: Duration,
    pub findings: Vec<Finding>,
    pub tallies: Tallies,
    /// Why the run ended before its time.
    pub broken: Option<String>,
}

impl Finding {
    /// Findings of one name are likely to have one cause.
    pub fn name(&self) -> String {
        match self.steps.last() {
            Some(last) if self.difference.in_state => {
                format!("state after {}", name_of(&last.argv))
            }
            _ => name_of(&self.difference.argv),
        }
    }
}

impl Report {
    /// How many commands were sent and compared.
    pub fn commands(&self) -> usize {
        self.tallies.values().map(|tally| tally.sent).sum()
    }

    pub fn knows(&self, name: &str) -> bool {
        self.findings.iter().any(|known| known.name() == name)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "DIFFERENCE: {}: {}",
            self.name(),
            self.difference.objection
        )?;
        let count = self.steps.len();
        let again = if self.reproduced {
            ""
        } else {
            ", which did not differ when run again"
        };
        writeln!(
            f,
            "  on empty servers, {count} commands (of {}){again}:",
            self.shrunk_from
        )?;
        let several = self.steps.iter().any(|step| step.connection > 0);
        for step in &self.steps {
            let lane = if several {
                format!("{}> ", step.connection + 1)
            } else {
                String::new()
            };
            let ahead = if step.pipelined { "  (pipelined)" } else { "" };
            writeln!(f, "    {lane}{}{ahead}", typed(&step.argv))?;
        }
        if self.difference.in_state {
            writeln!(f, "  then the state, by: {}", typed(&self.difference.argv))?;
        }
        let (reference, target) =
            contrast(&self.difference.reference, self.difference.target.as_ref());
        writeln!(f, "  reference: {reference}")?;
        writeln!(f, "  target:    {target}")?;
        writeln!(
            f,
            "  replay:    differential --seed {} --commands {ROUND}",
            self.seed
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let commands = self.commands();
        let rate = commands as f64 / seconds.max(0.001);
        if let Some(reason) = &self.broken {
            writeln!(f, "broken off: {reason}")?;
        }
        let errors: usize = self.tallies.values().map(|tally| tally.errors).sum();
        let share = 100.0 * errors as f64 / (commands as f64).max(1.0);
        write!(
            f,
            "{commands} commands in {seconds:.1} s ({rate:.0}/s, {share:.0}% of them refused), {} differences",
            self.findings.len()
        )
    }
}

/// A command as redis-cli takes it, long arguments aside.
pub fn typed(argv: &[Vec<u8>]) -> String {
    argv.iter()
        .map(|word| typed_word(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn typed_word(word: &[u8]) -> String {
    if word.len() > LONG {
        return abbreviated(word);
    }
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        String::from_utf8_lossy(word).into_owned()
    } else {
        format!("\"{}\"", word.escape_ascii())
    }
}

/// Large values repeat a short word, as long as no command has taken them apart.
fn abbreviated(word: &[u8]) -> String {
    let length = word.len();
    let period = (1..=16).find(|&period| word.iter().zip(&word[period..]).all(|(a, b)| a == b));
    match period {
        Some(period) => format!(
            "<\"{}\" over and over, {length} bytes>",
            word[..period].escape_ascii()
        ),
        None => format!("<\"{}\"..., {length} bytes>", word[..LONG].escape_ascii()),
    }
}

/// Both replies, cut around the first place in which they differ.
fn contrast(reference: &Value, target: Option<&Value>) -> (String, String) {
    let reference = format!("{reference:?}");
    let Some(target) = target else {
        return (window(&reference, 0), "nothing".to_owned());
    };
    let target = format!("{target:?}");
    let same = reference
        .bytes()
        .zip(target.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    (window(&reference, same), window(&target, same))
}

fn window(text: &str, around: usize) -> String {
    if text.len() <= WINDOW {
        return text.to_owned();
    }
    // Replies are printed in ASCII, so any byte is a boundary.
    let start = around.saturating_sub(WINDOW / 3).min(text.len());
    let end = text.len().min(start + WINDOW);
    let head = if start > 0 { "..." } else { "" };
    let tail = if end < text.len() { "..." } else { "" };
    format!(
        "{head}{}{tail} ({} characters, the same up to {around})",
        &text[start..end],
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::super::rule::words;
    use super::*;

    #[test]
    fn commands_are_quoted_as_redis_cli_wants_them() {
        let mut argv = words(&["SET", "k", "two words", ""]);
        argv.push(b"\x00\r\n".to_vec());
        assert_eq!(typed(&argv), r#"SET k "two words" "" "\x00\r\n""#);
    }

    #[test]
    fn a_large_value_is_told_in_a_line() {
        let word: Vec<u8> = b"abcdefg".iter().copied().cycle().take(16_385).collect();
        assert_eq!(typed(&[word]), r#"<"abcdefg" over and over, 16385 bytes>"#);
    }

    #[test]
    fn long_replies_are_shown_where_they_differ() {
        let long = |byte: u8| {
            let mut bytes = vec![b'a'; 50_000];
            bytes[40_000] = byte;
            Value::Bulk(bytes)
        };
        let (reference, target) = contrast(&long(b'x'), Some(&long(b'y')));
        assert!(reference.contains('x') && reference.len() < 500);
        assert!(target.contains('y') && target.contains("the same up to 40001"));
    }
}
