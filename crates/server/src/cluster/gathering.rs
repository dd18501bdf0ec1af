//! Which commits of a region are proposed together, and when.
//!
//! A proposal costs each replica a write to its disk and some messages, whether it carries one command or hundreds. So one of a
//! region is under way at a time, and what is committed meanwhile is gathered for the next.
//!
//! When one has come to its end, those who waited for it are answered, and most of them soon have something to write again. If
//! the next left at once, it would leave without them, and clients would fall into groups that take turns, with more proposals
//! than are needed. So it waits a moment, until nearly as much has come as there was before. Where clients do not
//! come back so soon, that is in vain: if it was so twice it is not tried again for a while, which is the longer the more often it was.

use cairn_engine::{Batch, EngineError, Family};
use tokio::sync::oneshot;

/// So much need not wait until the proposal before it has come to its end: large ones cost little beside what they carry.
const ENOUGH: usize = 256 * 1024;
/// The most proposals that leave without waiting after one has waited in vain.
const LONGEST_BREAK: u32 = 63;

/// A batch that is to be committed, and who wants to know what becomes of it.
pub struct Gathered {
    pub batch: Batch,
    pub told: oneshot::Sender<Result<(), EngineError>>,
}

/// What waits to be proposed, in the order in which it came.
#[derive(Default)]
pub struct Gathering {
    commits: Vec<Gathered>,
    size: Size,
    /// Proposals whose fate is not known yet, or behind which others wait for more.
    under_way: usize,
    /// So many rows are waited for.
    awaited: Option<usize>,
    /// Twice as many proposals as leave without waiting before one does again, and how many of them are left.
    pause: u32,
    left: u32,
    /// Whether it was not in vain to wait the last time.
    has_paid: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Size {
    bytes: usize,
    rows: usize,
}

impl Size {
    fn of(commits: &[Gathered]) -> Size {
        Size {
            bytes: commits.iter().map(|commit| commit.batch.bytes()).sum(),
            rows: rows(commits),
        }
    }
}

/// How many rows commits change.
pub fn rows(commits: &[Gathered]) -> usize {
    commits.iter().map(|commit| commit.batch.len()).sum()
}

impl Gathering {
    /// Takes a commit in; returns what is to be proposed now, as one.
    pub fn add(&mut self, commit: Gathered) -> Option<Vec<Gathered>> {
        self.size.bytes += commit.batch.bytes();
        self.size.rows += commit.batch.len();
        self.commits.push(commit);
        self.next()
    }

    /// What is to be proposed now. What changes more than keys may change what the next batch means: it stands alone. So does
    /// what is large: it may be too large for a proposal, and others must not be refused with it.
    fn next(&mut self) -> Option<Vec<Gathered>> {
        if self.under_way > 0 && self.size.bytes < ENOUGH {
            return None;
        }
        let stands_alone = |commit: &Gathered| commit.batch.has_changes_in(Family::Meta);
        let mut bytes = 0;
        let joined = self.commits.iter().take_while(|commit| {
            let has_room = bytes < ENOUGH && commit.batch.bytes() < ENOUGH;
            bytes += commit.batch.bytes();
            has_room && !stands_alone(commit)
        });
        let count = joined.count().max(1).min(self.commits.len());
        if count == 0 {
            return None;
        }
        let rest = self.commits.split_off(count);
        let next = std::mem::replace(&mut self.commits, rest);
        self.size = Size::of(&self.commits);
        self.under_way += 1;
        Some(next)
    }

    /// A proposal of so many rows has come to its end. Whether to wait for more before the next.
    pub fn expects_more(&mut self, answered: usize) -> bool {
        let before = answered + self.size.rows;
        if before < 2 || self.awaited.is_some() {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.awaited = Some(before - before / 8);
        true
    }

    /// Whether as much has come as is waited for.
    pub fn has_come(&self) -> bool {
        self.awaited
            .is_some_and(|awaited| self.size.rows >= awaited)
    }

    /// It is waited for no longer.
    pub fn stop_waiting(&mut self) {
        let has_come = self.has_come();
        self.pause = match has_come {
            true if self.has_paid => self.pause / 2,
            // Where it pays only every other time, it is as if it did not.
            true => self.pause,
            false => (self.pause * 2 + 1).min(2 * LONGEST_BREAK + 1),
        };
        self.has_paid = has_come;
        // That it was in vain once may be chance, and who leaves at once now has nearly nobody along.
        self.left = self.pause / 2;
        self.awaited = None;
    }

    /// What follows a proposal that has come to its end.
    pub fn ended(&mut self) -> Option<Vec<Gathered>> {
        self.under_way -= 1;
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(family: Family, bytes: usize) -> Gathered {
        let mut batch = Batch::new();
        batch.put(family, b"k", vec![0; bytes - 1]);
        let (told, _) = oneshot::channel();
        Gathered { batch, told }
    }

    fn count(next: Option<Vec<Gathered>>) -> Option<usize> {
        next.map(|commits| commits.len())
    }

    #[test]
    fn what_comes_meanwhile_is_proposed_as_one() {
        let mut gathering = Gathering::default();
        let small = || gathered(Family::Data, 10);
        assert_eq!(count(gathering.next()), None);
        assert_eq!(count(gathering.add(small())), Some(1));
        for _ in 0..3 {
            assert_eq!(count(gathering.add(small())), None, "one is under way");
        }
        assert_eq!(count(gathering.ended()), Some(3));
        assert_eq!(count(gathering.ended()), None);

        // What is large does not wait.
        assert_eq!(count(gathering.add(small())), Some(1));
        assert_eq!(count(gathering.add(small())), None);
        let large = gathered(Family::Data, ENOUGH);
        assert_eq!(count(gathering.add(large)), Some(1), "what came before");
        assert_eq!(count(gathering.add(small())), Some(1), "and it alone");
        assert_eq!(count(gathering.ended()), None, "two are under way");
        assert_eq!(count(gathering.ended()), None);
        assert_eq!(count(gathering.ended()), Some(1));
        assert_eq!(count(gathering.ended()), None);
        assert_eq!(gathering.size, Size::default());
    }

    #[test]
    fn what_changes_more_than_keys_stands_alone_in_its_place() {
        let mut gathering = Gathering::default();
        let first = gathering.add(gathered(Family::Data, 10));
        for family in [
            Family::Meta,
            Family::Data,
            Family::Data,
            Family::Meta,
            Family::Meta,
            Family::Data,
        ] {
            assert_eq!(count(gathering.add(gathered(family, 10))), None);
        }
        let mut counts = Vec::new();
        let mut next = first;
        while let Some(commits) = next {
            counts.push(commits.len());
            next = gathering.ended();
        }
        assert_eq!(counts, [1, 1, 2, 1, 1, 1]);
    }

    #[test]
    fn those_who_were_answered_are_waited_for() {
        let mut gathering = Gathering::default();
        let small = || gathered(Family::Data, 10);
        gathering.add(small());
        assert!(!gathering.expects_more(1), "a single client");
        assert_eq!(count(gathering.ended()), None);

        gathering.add(small());
        (0..7).for_each(|_| drop(gathering.add(small())));
        // Eight are there, of which one was answered; seven are enough.
        assert!(gathering.expects_more(1));
        assert!(gathering.has_come());
        gathering.stop_waiting();
        assert_eq!(count(gathering.ended()), Some(7));
        gathering.add(small());
        assert!(gathering.expects_more(7));
        (0..5).for_each(|_| drop(gathering.add(small())));
        assert!(!gathering.has_come());
        gathering.add(small());
        assert!(gathering.has_come());
        gathering.stop_waiting();
        assert_eq!(count(gathering.ended()), Some(7));
    }

    #[test]
    fn who_does_not_come_back_is_waited_for_ever_less() {
        let mut gathering = Gathering::default();
        let mut waited = Vec::new();
        for round in 0..200 {
            gathering.add(gathered(Family::Data, 10));
            if gathering.expects_more(9) {
                waited.push(round);
                gathering.stop_waiting();
            }
            gathering.ended();
        }
        assert_eq!(waited, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    /// A client by itself whose commands change more rows and fewer in turn.
    #[test]
    fn who_brings_less_every_other_time_is_not_waited_for() {
        let mut gathering = Gathering::default();
        gathering.add(gathered(Family::Data, 10));
        let mut in_vain = 0;
        for (answered, brought) in [(3, 2), (2, 3)].into_iter().cycle().take(200) {
            let waits = gathering.expects_more(answered);
            (0..brought).for_each(|_| drop(gathering.add(gathered(Family::Data, 10))));
            if waits {
                in_vain += u32::from(!gathering.has_come());
                gathering.stop_waiting();
            }
            gathering.ended();
        }
        assert!(in_vain < 10, "{in_vain} of 100");
    }
}
