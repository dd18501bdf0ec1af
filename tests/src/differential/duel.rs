//! Sends the steps of a round to both servers and compares what comes back.
//!
//! Steps travel in pipelines, to both servers at once. The reference gets a little more: before a
//! random pick it is asked what there is to pick from, and after SPOP it is made to hold what the
//! target holds, so that one random choice does not end the comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use super::fair::{is_fair, name_of};
use super::grammar::Argv;
use super::judge::{Objection, judge, leaves, scan_page, scanned};
use super::peer::{Link, Peer};
use super::round::Step;
use super::rule::{Guard, Rule, settling, words};
use super::walk::walk;
use crate::value::Value;

/// What may be in flight to a server that does not read on before its replies are read.
const PIPELINE_BYTES: usize = 32 * 1024;
/// The table of LCS has a cell for each pair of bytes. Redis fills what fits in 512 MB and refuses
/// the rest at once; in between it would take seconds.
const LCS_CELLS: Range<i64> = 1 << 21..1 << 28;
/// No collection of a round needs so many pages.
const SCAN_PAGES: usize = 100_000;

/// A reply, or the whole state, in which the target differs from the reference.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The step after which it showed.
    pub step: usize,
    /// The command whose replies differ: the step's own, or one that looked at the state.
    pub argv: Argv,
    /// Whether the state differs, rather than a reply to a step.
    pub in_state: bool,
    pub objection: String,
    pub reference: Value,
    /// None if the target did not answer.
    pub target: Option<Value>,
}

/// Why a duel ended early.
pub enum End {
    Difference(Box<Difference>),
    /// The reference failed, or one of the two cannot be connected to.
    Broken(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Broken(error)
    }
}

/// How often a command was sent, and how often the reference took it for an error.
#[derive(Default, Clone, Copy, Debug)]
pub struct Tally {
    pub sent: usize,
    pub errors: usize,
}

pub type Tallies = BTreeMap<String, Tally>;

/// When to compare the whole state, beside all replies.
#[derive(Clone, Copy)]
pub enum Walks {
    Never,
    AtTheEnd,
    Every(usize),
}

/// Plays the steps on emptied servers.
pub fn duel(
    target: &dyn Peer,
    reference: &dyn Peer,
    steps: &[Step],
    walks: Walks,
    tallies: &mut Tallies,
) -> Result<(), End> {
    let mut lanes = Lanes::open(target, reference, steps)?;
    let mut walked = 0;
    for pipeline in pipelines(steps) {
        let end = pipeline.end;
        let lane = &mut lanes.of_steps[steps[pipeline.start].connection];
        let mut bout = Bout {
            lane,
            steps,
            tallies,
        };
        bout.play(pipeline)?;
        if matches!(walks, Walks::Every(interval) if end - walked >= interval) {
            lanes.walk(end - 1)?;
            walked = end;
        }
    }
    if !matches!(walks, Walks::Never) && walked < steps.len() {
        lanes.walk(steps.len() - 1)?;
    }
    Ok(())
}

/// A connection to each server, on which both get the same commands.
pub struct Lane {
    pub target: Box<dyn Link>,
    pub reference: Box<dyn Link>,
}

struct Lanes {
    of_steps: Vec<Lane>,
    /// Looks at the state without changing what the steps' connections have selected.
    observer: Lane,
}

impl Lanes {
    fn open(target: &dyn Peer, reference: &dyn Peer, steps: &[Step]) -> io::Result<Lanes> {
        let open = || -> io::Result<Lane> {
            Ok(Lane {
                target: target.connect()?,
                reference: reference.connect()?,
            })
        };
        let mut observer = open()?;
        let empty = words(&["FLUSHALL"]);
        observer.target.ask(&empty)?;
        observer.reference.ask(&empty)?;
        let connections = steps.iter().map(|step| step.connection + 1).max();
        Ok(Lanes {
            of_steps: (0..connections.unwrap_or(0))
                .map(|_| open())
                .collect::<io::Result<_>>()?,
            observer,
        })
    }

    fn walk(&mut self, step: usize) -> Result<(), End> {
        walk(&mut self.observer, step)
    }
}

/// Cuts the steps into runs that are sent without waiting.
fn pipelines(steps: &[Step]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for (place, step) in steps.iter().enumerate() {
        let size: usize = step.argv.iter().map(|word| word.len() + 16).sum();
        let guarded = Guard::of(&step.argv).is_some();
        if place > start && (guarded || bytes + size > PIPELINE_BYTES) {
            found.push(start..place);
            (start, bytes) = (place, 0);
        }
        bytes += size;
        let same_lane = steps
            .get(place + 1)
            .is_some_and(|next| next.connection == step.connection);
        let stops = Rule::of(&step.argv).stops_the_pipeline();
        if guarded || stops || !step.pipelined || !same_lane {
            found.push(start..place + 1);
            (start, bytes) = (place + 1, 0);
        }
    }
    found
}

/// One pipeline on its way.
struct Bout<'a> {
    lane: &'a mut Lane,
    steps: &'a [Step],
    tallies: &'a mut Tallies,
}

impl Bout<'_> {
    fn play(&mut self, pipeline: Range<usize>) -> Result<(), End> {
        let first = &self.steps[pipeline.start];
        if let Some(guard) = Guard::of(&first.argv)
            && !self.allows(&guard)?
        {
            return Ok(());
        }
        for step in &self.steps[pipeline.clone()] {
            debug_assert!(is_fair(&step.argv));
            self.send(&step.argv);
        }
        // A target that cannot be written to shows when its reply is missing.
        self.lane.target.flush().ok();
        self.lane.reference.flush()?;
        for place in pipeline {
            self.compare(place)?;
        }
        Ok(())
    }

    fn send(&mut self, argv: &[Vec<u8>]) {
        self.lane.target.send(argv);
        let rule = Rule::of(argv);
        if let Some(population) = rule.population() {
            self.lane.reference.send(population);
        }
        self.lane.reference.send(argv);
        if let Some(settling) = settling(argv) {
            self.lane.target.send(&settling);
            self.lane.reference.send(&settling);
        }
    }

    fn compare(&mut self, place: usize) -> Result<(), End> {
        let argv = &self.steps[place].argv;
        let rule = Rule::of(argv);
        let population = match rule.population() {
            Some(_) => Some(self.lane.reference.receive()?),
            None => None,
        };
        let (reference, target) = self.replies(place, argv)?;
        self.count(argv, &reference);
        let verdict = judge(argv, &rule, population.as_ref(), &reference, &target);
        verdict.map_err(|objection| differs(place, argv, objection, &reference, &target))?;
        if let Some(settling) = settling(argv) {
            let (reference, target) = self.replies(place, &settling)?;
            if reference != target {
                let objection = "a key set with its time to live is not seen alike";
                return Err(differs(place, &settling, objection, &reference, &target));
            }
        }
        match rule {
            Rule::Scan { cursor, width } => self.scan(place, cursor, width, reference, target),
            Rule::Pop { .. } => Ok(self.reconcile(argv, &reference, &target)?),
            _ => Ok(()),
        }
    }

    fn replies(&mut self, place: usize, argv: &[Vec<u8>]) -> Result<(Value, Value), End> {
        let reference = self.lane.reference.receive()?;
        match self.lane.target.receive() {
            Ok(target) => Ok((reference, target)),
            Err(error) => Err(no_reply(place, argv, reference, &error)),
        }
    }

    fn count(&mut self, argv: &[Vec<u8>], reference: &Value) {
        let tally = self.tallies.entry(name_of(argv)).or_default();
        tally.sent += 1;
        tally.errors += usize::from(reference.is_error());
    }

    fn allows(&mut self, guard: &Guard) -> io::Result<bool> {
        let reference = &mut self.lane.reference;
        Ok(match guard {
            Guard::ShortStrings(first, second) => {
                let lengths = (reference.ask(first)?, reference.ask(second)?);
                match (lengths.0.as_int(), lengths.1.as_int()) {
                    (Some(a), Some(b)) => !LCS_CELLS.contains(&((a + 1) * (b + 1))),
                    _ => true,
                }
            }
            Guard::HasOrder(question) => {
                let kind = reference.ask(question)?;
                !matches!(kind.as_bytes(), Some(b"set" | b"zset"))
            }
            Guard::IsSound(question) => {
                let count = reference.ask(question)?;
                !matches!(count, Value::Error(text) if text.starts_with(b"INVALIDOBJ"))
            }
            Guard::OneScore(question) => {
                let members = reference.ask(question)?;
                let texts = leaves(&members);
                let scores: BTreeSet<_> = texts.chunks(2).filter_map(|pair| pair.get(1)).collect();
                members.is_error() || scores.len() <= 1
            }
        })
    }

    /// Goes on from the first page of each server to its last.
    fn scan(
        &mut self,
        place: usize,
        cursor: usize,
        width: usize,
        reference: Value,
        target: Value,
    ) -> Result<(), End> {
        let argv = &self.steps[place].argv;
        if reference.is_error() || argv[cursor] != b"0" {
            return Ok(());
        }
        let expected = pages(&mut *self.lane.reference, argv, cursor, reference.clone())?;
        let found = pages(&mut *self.lane.target, argv, cursor, target)
            .map_err(|error| no_reply(place, argv, reference, &error))?;
        scanned(width, &expected, &found).map_err(|objection| {
            differs(
                place,
                argv,
                objection,
                &Value::Array(expected),
                &Value::Array(found),
            )
        })
    }

    /// Puts back what only the reference popped, then takes out what only the target did. In this
    /// order the set never becomes empty, so it keeps its time to live.
    fn reconcile(&mut self, argv: &[Vec<u8>], reference: &Value, target: &Value) -> io::Result<()> {
        if reference.is_error() {
            return Ok(());
        }
        let ours: BTreeSet<_> = leaves(reference).into_iter().collect();
        let theirs: BTreeSet<_> = leaves(target).into_iter().collect();
        for (command, members) in [("SADD", &ours - &theirs), ("SREM", &theirs - &ours)] {
            if !members.is_empty() {
                let mut correction = vec![command.as_bytes().to_vec(), argv[1].clone()];
                correction.extend(members.into_iter().map(|member| member.into_owned()));
                self.lane.reference.ask(&correction)?;
            }
        }
        Ok(())
    }
}

/// All elements from the given first page on.
fn pages(
    link: &mut dyn Link,
    argv: &[Vec<u8>],
    cursor: usize,
    first: Value,
) -> io::Result<Vec<Value>> {
    let mut elements = Vec::new();
    let mut page = first;
    for _ in 0..SCAN_PAGES {
        let Some((next, found)) = scan_page(&page) else {
            let told = format!("not a page of a scan: {page:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        };
        elements.extend_from_slice(found);
        if next == b"0" {
            return Ok(elements);
        }
        let mut question = argv.to_vec();
        question[cursor] = next.to_vec();
        page = link.ask(&question)?;
    }
    Err(io::Error::other("a scan without end"))
}

fn differs(
    step: usize,
    argv: &[Vec<u8>],
    objection: Objection,
    reference: &Value,
    target: &Value,
) -> End {
    End::Difference(Box::new(Difference {
        step,
        argv: argv.to_vec(),
        in_state: false,
        objection: objection.to_owned(),
        reference: reference.clone(),
        target: Some(target.clone()),
    }))
}

fn no_reply(step: usize, argv: &[Vec<u8>], reference: Value, error: &io::Error) -> End {
    End::Difference(Box::new(Difference {
        step,
        argv: argv.to_vec(),
        in_state: false,
        objection: format!("no reply: {error}"),
        reference,
        target: None,
    }))
}
