//! What Redis 7.0 answers, and so do we.
//!
//! The files in `golden` hold what was asked and, behind `=`, what redis-server answered:
//!
//! ```text
//! eval return KEYS[1]          EVAL or EVAL_RO of the rest of the line; ¶ is a line end
//! with 1 key arg               numkeys and what follows; 0 if the line is missing
//! load #!lua name=...          FUNCTION LOAD; replace: with REPLACE
//! do FCALL f 0                 any command, in words
//! = "key"
//! ```
//!
//! `RECORD=1 cargo test -p cairn-script --test golden` writes the answers anew.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use cairn_resp::inline;
use cairn_script::Value;
use common::notation::notation;
use common::redis::Redis;
use common::table::Server;

fn files() -> Vec<PathBuf> {
    let dir = Path::new("tests/golden");
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// A question of a file, the line where it stands, and the answer that follows.
struct Question {
    line: usize,
    words: Vec<Vec<u8>>,
    answer: String,
}

fn questions(text: &str) -> Vec<Question> {
    let mut questions: Vec<Question> = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest_words = || inline::words(rest.as_bytes()).unwrap();
        let code = rest.replace('¶', "\n").into_bytes();
        let words: Vec<Vec<u8>> = match kind {
            "" | "#" => continue,
            "=" => {
                questions.last_mut().unwrap().answer = rest.to_string();
                continue;
            }
            "with" => {
                let words = &mut questions.last_mut().unwrap().words;
                words.truncate(2);
                words.extend(rest_words());
                continue;
            }
            "eval" => vec![b"EVAL".to_vec(), code, b"0".to_vec()],
            "eval_ro" => vec![b"EVAL_RO".to_vec(), code, b"0".to_vec()],
            "load" => vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), code],
            "replace" => ["FUNCTION", "LOAD", "REPLACE"]
                .map(|word| word.as_bytes().to_vec())
                .into_iter()
                .chain([code])
                .collect(),
            "do" => rest_words(),
            _ => panic!("line {}: what is '{kind}'?", place + 1),
        };
        questions.push(Question {
            line: place + 1,
            words,
            answer: String::new(),
        });
    }
    questions
}

/// Asks all questions of all files, and compares with the answers that stand there.
fn compare<Server>(
    mut start: impl FnMut() -> Server,
    mut ask: impl FnMut(&mut Server, &[Vec<u8>]) -> Value,
) {
    let mut differences = Vec::new();
    for file in files() {
        let mut server = start();
        for question in questions(&fs::read_to_string(&file).unwrap()) {
            let answer = notation(&ask(&mut server, &question.words));
            if answer != question.answer {
                let asked: Vec<_> = question.words[1..]
                    .iter()
                    .map(|word| String::from_utf8_lossy(word))
                    .collect();
                differences.push(format!(
                    "{}:{}: {}\n  expected {}\n  found    {answer}",
                    file.file_name().unwrap().to_string_lossy(),
                    question.line,
                    asked.join(" "),
                    question.answer,
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn we_answer_as_recorded() {
    compare(Server::new, |server, words| server.ask(words));
}

#[test]
fn redis_answers_as_recorded() {
    if std::env::var_os("RECORD").is_some() {
        record();
    }
    compare(Redis::start, |redis, words| redis.ask(words));
}

fn record() {
    for file in files() {
        let mut redis = Redis::start();
        let text = fs::read_to_string(&file).unwrap();
        let mut questions = questions(&text).into_iter().peekable();
        let mut recorded = String::new();
        let mut pending: Option<Question> = None;
        for (place, line) in text.lines().enumerate() {
            if line.starts_with("= ") || line == "=" {
                continue;
            }
            let goes_on = line.starts_with("with ");
            if !goes_on && let Some(question) = pending.take() {
                recorded += &format!("= {}\n", notation(&redis.ask(&question.words)));
            }
            recorded += &format!("{line}\n");
            if questions.peek().is_some_and(|next| next.line == place + 1) {
                pending = questions.next();
            }
        }
        if let Some(question) = pending {
            recorded += &format!("= {}\n", notation(&redis.ask(&question.words)));
        }
        fs::write(file, recorded).unwrap();
    }
}
