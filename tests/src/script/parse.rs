//! Reads a script's text. What it cannot read it refuses, naming the line.

use std::time::Duration;

use super::check::Check;
use super::{Action, Script, Section, Step, words};

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut steps = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            let line = at;
            at += 1;
            if is_blank(&lines[line]) {
                continue;
            }
            let action = action(&lines[line]).map_err(|why| format!("line {}: {why}", line + 1))?;
            if steps.is_empty() && !matches!(action, Action::Section(_)) {
                return Err("a script begins with a section".into());
            }
            if action.is_answered() {
                at += lines[at..].iter().take_while(|line| is_reply(line)).count();
            }
            let reply = line + 1..at;
            steps.push(Step {
                line,
                reply,
                action,
            });
        }
        Ok(Script { lines, steps })
    }
}

impl Action {
    fn is_answered(&self) -> bool {
        matches!(self, Action::Command { .. } | Action::Raw { .. })
    }
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn is_reply(line: &str) -> bool {
    let begins_a_step =
        prompt(line).is_some() || line.starts_with("== ") || line.starts_with("wait ");
    !is_blank(line) && !begins_a_step
}

fn action(line: &str) -> Result<Action, String> {
    if let Some(title) = line.strip_prefix("== ") {
        return Ok(Action::Section(section(title)));
    }
    if let Some(duration) = line.strip_prefix("wait ") {
        return Ok(Action::Wait(milliseconds(duration)?));
    }
    match prompt(line) {
        Some((connection, Prompt::Command, text)) => command(connection, text),
        Some((connection, Prompt::Raw, text)) => Ok(Action::Raw {
            connection: connection.into(),
            bytes: words::concatenate(text)?,
        }),
        None => Err(format!("neither a command nor a reply to one: {line}")),
    }
}

enum Prompt {
    Command,
    Raw,
}

/// Splits `name> command`. A name begins with a letter, or a push (`1> …`) would look like one.
fn prompt(line: &str) -> Option<(&str, Prompt, &str)> {
    let (name, rest) = line.split_once('>')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase());
    match (is_name, rest.strip_prefix("> ")) {
        (false, _) => None,
        (true, Some(text)) => Some((name, Prompt::Raw, text)),
        (true, None) => Some((name, Prompt::Command, rest.strip_prefix(' ')?)),
    }
}

fn section(title: &str) -> Section {
    let title = title.trim();
    match title.strip_suffix("(RESP3)") {
        Some(title) => Section {
            title: title.trim().into(),
            resp3: true,
        },
        None => Section {
            title: title.into(),
            resp3: false,
        },
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text
        .trim()
        .strip_suffix("ms")
        .and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| format!("'{text}' is no number of ms"))?;
    Ok(Duration::from_millis(number))
}

fn command(connection: &str, text: &str) -> Result<Action, String> {
    let (text, modifiers) = text.split_once(" ;; ").unwrap_or((text, ""));
    words::split(text)?;
    let mut check = Check::Exact;
    let mut times = 1;
    for modifier in modifiers
        .split(',')
        .map(str::trim)
        .filter(|modifier| !modifier.is_empty())
    {
        let (name, rest) = modifier.split_once(' ').unwrap_or((modifier, ""));
        match name {
            "times" => times = rest.parse().map_err(|_| format!("times '{rest}'"))?,
            "unordered" => check = Check::Unordered,
            "pairs" => check = Check::Pairs,
            "glob" => check = Check::Glob,
            "within" => {
                check = Check::Within(rest.parse().map_err(|_| format!("within '{rest}'"))?)
            }
            "picks" => check = Check::Picks(words::split(rest)?),
            "draws" => check = Check::Draws(words::split(rest)?),
            other => return Err(format!("no modifier is called '{other}'")),
        }
    }
    Ok(Action::Command {
        connection: connection.into(),
        text: text.into(),
        check,
        times,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_reply_ends_at_the_next_thing() {
        let script =
            Script::parse("== s\n> A\n1) x\n2> y\n> B\nr\nwait 5ms\nbob> C\n# no\n== t (RESP3)\n");
        let steps = script.unwrap().steps;
        let replies: Vec<_> = steps.iter().map(|step| step.reply.clone()).collect();
        assert_eq!(replies, [1..1, 2..4, 5..6, 7..7, 8..8, 10..10]);
        assert!(
            matches!(&steps[4].action, Action::Command { connection, .. } if connection == "bob")
        );
        assert!(matches!(&steps[5].action, Action::Section(section) if section.resp3));
        assert!(Script::parse("> A\n").is_err(), "no section");
    }

    #[test]
    fn modifiers_are_read_and_unknown_ones_refused() {
        let modified = |line: &str| match action(line) {
            Ok(Action::Command { check, times, .. }) => Ok((check, times)),
            other => Err(other.map(|_| ())),
        };
        assert_eq!(modified("> A ;; unordered").unwrap(), (Check::Unordered, 1));
        assert_eq!(
            modified("> A ;; within 0.5, times 3").unwrap(),
            (Check::Within(0.5), 3)
        );
        let pool = vec![b"a".to_vec(), b"b c".to_vec()];
        assert_eq!(
            modified(r#"> A ;; picks a "b c""#).unwrap(),
            (Check::Picks(pool), 1)
        );
        assert!(modified("> A ;; upside-down").is_err());
        assert!(modified("> A ;; times x").is_err());
        assert!(modified("> A \"").is_err());
        assert!(modified("stray").is_err());
        assert!(modified("wait 5").is_err());
    }
}
