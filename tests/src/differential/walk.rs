//! Compares all that two servers hold: every database, every key, its type, time to live and content.
//!
//! Content is read in more than one way, so that a count, an index or a second copy of the data which
//! no longer fits the rest shows here, even if no command of the round came across it.

use std::io;

use super::duel::{Difference, End, Lane};
use super::grammar::Argv;
use super::judge::{judge, leaves};
use super::rule::{Rule, words};
use crate::value::Value;

const DATABASES: usize = 16;
/// Members whose scores and ranks are asked one by one.
const SAMPLED: usize = 16;
/// As many questions at once, and members no longer than this, leave a server nothing to choke on.
const PIPELINE: usize = 32;
const MEMBER_LENGTH: usize = 1000;

/// `step` is the last one played before.
pub fn walk(lane: &mut Lane, step: usize) -> Result<(), End> {
    let mut walk = Walk { lane, step };
    let databases = walk.databases()?;
    for database in databases {
        walk.database(database)?;
    }
    Ok(())
}

struct Walk<'a> {
    lane: &'a mut Lane,
    step: usize,
}

impl Walk<'_> {
    /// Those that are not empty, in which both servers have as many keys.
    fn databases(&mut self) -> Result<Vec<usize>, End> {
        let questions = (0..DATABASES).flat_map(|database| [select(database), words(&["DBSIZE"])]);
        let replies = self.agree(&questions.collect::<Vec<_>>())?;
        let sizes = replies.iter().skip(1).step_by(2).enumerate();
        let filled = sizes.filter(|(_, size)| size.as_int() != Some(0));
        Ok(filled.map(|(database, _)| database).collect())
    }

    fn database(&mut self, database: usize) -> Result<(), End> {
        let replies = self.agree(&[select(database), words(&["KEYS", "*"])])?;
        let keys: Vec<Vec<u8>> = leaves(&replies[1])
            .into_iter()
            .map(|key| key.into_owned())
            .collect();
        let questions = keys
            .iter()
            .flat_map(|key| [about(key, "TYPE", &[]), about(key, "PTTL", &[])]);
        let replies = self.agree(&questions.collect::<Vec<_>>())?;
        let types = replies.iter().step_by(2);
        let questions = keys
            .iter()
            .zip(types)
            .flat_map(|(key, kind)| contents(key, kind));
        let questions: Vec<_> = questions.collect();
        let replies = self.agree(&questions)?;
        let closer = questions
            .iter()
            .zip(&replies)
            .flat_map(|(question, reply)| closer(question, reply));
        self.agree(&closer.collect::<Vec<_>>())?;
        Ok(())
    }

    /// Asks both servers, and returns the reference's replies if the target's agree.
    fn agree(&mut self, questions: &[Argv]) -> Result<Vec<Value>, End> {
        let mut replies = Vec::with_capacity(questions.len());
        for pipeline in questions.chunks(PIPELINE) {
            for question in pipeline {
                self.lane.target.send(question);
                self.lane.reference.send(question);
            }
            self.lane.target.flush().ok();
            self.lane.reference.flush()?;
            for question in pipeline {
                replies.push(self.compare(question)?);
            }
        }
        Ok(replies)
    }

    fn compare(&mut self, question: &Argv) -> Result<Value, End> {
        let reference = self.lane.reference.receive()?;
        let (objection, target) = match self.lane.target.receive() {
            Ok(target) => match judge(question, &Rule::of(question), None, &reference, &target) {
                Ok(()) => return Ok(reference),
                Err(objection) => (objection.to_owned(), Some(target)),
            },
            Err(error) => (no_reply(&error), None),
        };
        Err(End::Difference(Box::new(Difference {
            step: self.step,
            argv: question.clone(),
            in_state: true,
            objection,
            reference,
            target,
        })))
    }
}

fn no_reply(error: &io::Error) -> String {
    format!("no reply: {error}")
}

fn select(database: usize) -> Argv {
    words(&["SELECT", &database.to_string()])
}

fn about(key: &[u8], command: &str, rest: &[&str]) -> Argv {
    let mut question = vec![command.as_bytes().to_vec(), key.to_vec()];
    question.extend(words(rest));
    question
}

fn contents(key: &[u8], kind: &Value) -> Vec<Argv> {
    match kind.as_bytes() {
        Some(b"string") => vec![about(key, "GET", &[]), about(key, "STRLEN", &[])],
        Some(b"hash") => vec![about(key, "HGETALL", &[]), about(key, "HLEN", &[])],
        Some(b"list") => vec![about(key, "LRANGE", &["0", "-1"]), about(key, "LLEN", &[])],
        Some(b"set") => vec![about(key, "SMEMBERS", &[]), about(key, "SCARD", &[])],
        Some(b"zset") => vec![
            about(key, "ZRANGE", &["0", "-1", "WITHSCORES"]),
            about(key, "ZCARD", &[]),
            about(key, "ZCOUNT", &["-inf", "+inf"]),
        ],
        Some(b"stream") => vec![
            about(key, "XRANGE", &["-", "+"]),
            about(key, "XREVRANGE", &["+", "-"]),
            vec![b"XINFO".to_vec(), b"STREAM".to_vec(), key.to_vec()],
            vec![b"XINFO".to_vec(), b"GROUPS".to_vec(), key.to_vec()],
            about(key, "XPENDING", &["g"]),
            about(key, "XPENDING", &["g", "-", "+", "1000"]),
            about(key, "XPENDING", &["h", "-", "+", "1000", "alice"]),
        ],
        _ => Vec::new(),
    }
}

/// Questions about single members of a collection that was just listed.
fn closer(listing: &Argv, reply: &Value) -> Vec<Argv> {
    let (commands, width): (&[&str], usize) = match listing[0].as_slice() {
        b"ZRANGE" => (&["ZSCORE", "ZRANK"], 2),
        b"HGETALL" => (&["HGET"], 2),
        b"SMEMBERS" => (&["SISMEMBER"], 1),
        _ => return Vec::new(),
    };
    let texts = leaves(reply);
    let stride = (texts.len() / width).div_ceil(SAMPLED).max(1);
    let mut questions = Vec::new();
    let members = texts.iter().step_by(width * stride);
    for member in members.filter(|member| member.len() <= MEMBER_LENGTH) {
        for command in commands {
            let mut question = about(&listing[1], command, &[]);
            question.push(member.to_vec());
            questions.push(question);
        }
    }
    questions
}
