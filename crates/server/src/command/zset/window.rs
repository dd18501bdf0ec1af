//! The next members by score out of any number, as many as fit into bounded memory.

use std::cmp::Ordering;

use cairn_store::zset::Scored;

/// How many bytes of members are kept; up to twice as many before the last ones are given up.
pub const WINDOW: usize = 16 * 1024 * 1024;
/// What a member costs besides its bytes.
pub const OVERHEAD: usize = size_of::<Scored>() + 16;

fn compare(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    let by_score = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| a.1.cmp(b.1))
}

fn place(scored: &Scored) -> (f64, &[u8]) {
    (scored.score, &scored.member)
}

/// Keeps the lowest of the members it is offered that come after those it gave before.
pub struct Window {
    size: usize,
    kept: Vec<Scored>,
    bytes: usize,
    /// The last that was given, below which nothing is wanted any more.
    after: Option<Scored>,
    /// The last that was kept when there was no more room: nothing above it is wanted.
    up_to: Option<Scored>,
}

impl Window {
    pub fn new(size: usize) -> Window {
        Window {
            size,
            kept: Vec::new(),
            bytes: 0,
            after: None,
            up_to: None,
        }
    }

    pub fn offer(&mut self, member: &[u8], score: f64) {
        let is = |order: Ordering, than: &Option<Scored>| {
            than.as_ref()
                .is_none_or(|than| compare((score, member), place(than)) == order)
        };
        if !is(Ordering::Greater, &self.after) || !is(Ordering::Less, &self.up_to) {
            return;
        }
        self.bytes += member.len() + OVERHEAD;
        let member = member.to_vec();
        self.kept.push(Scored { member, score });
        if self.bytes > 2 * self.size {
            self.give_up_last();
        }
    }

    fn give_up_last(&mut self) {
        self.sort();
        while self.bytes > self.size && self.kept.len() > 1 {
            let last = self.kept.pop();
            self.bytes -= last.map_or(0, |last| last.member.len() + OVERHEAD);
        }
        self.up_to = self.kept.last().cloned();
    }

    fn sort(&mut self) {
        self.kept
            .sort_unstable_by(|a, b| compare(place(a), place(b)));
    }

    /// What was kept, in order. The next ones come after it.
    pub fn take(&mut self) -> Vec<Scored> {
        self.sort();
        self.bytes = 0;
        self.up_to = None;
        self.after = self.kept.last().cloned();
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers all members again and again, as a result that is made again does.
    fn windows(all: &[Scored], size: usize) -> Vec<Vec<Scored>> {
        let mut window = Window::new(size);
        let mut windows = Vec::new();
        loop {
            for Scored { member, score } in all {
                window.offer(member, *score);
            }
            match window.take() {
                empty if empty.is_empty() => return windows,
                next => windows.push(next),
            }
        }
    }

    #[test]
    fn windows_follow_each_other_in_order() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut all = Vec::new();
        for number in 0..1000 {
            let member = format!("{number:04}").into_bytes();
            // Few scores, so that there are many ties, and zero of either sign.
            let score =
                f64::from(random.i32(-3..3)) * 0.5 * random.choice([1.0, -1.0]).unwrap_or(1.0);
            all.push(Scored { member, score });
        }
        let mut expected = all.clone();
        expected.sort_by(|a, b| compare(place(a), place(b)));
        for size in [0, 1, 1000, 10_000, 1_000_000] {
            let windows = windows(&all, size);
            let kept = |window: &Vec<Scored>| -> usize {
                let cost = |scored: &Scored| scored.member.len() + OVERHEAD;
                window.iter().map(cost).sum()
            };
            let bound = (2 * size).max(4 + OVERHEAD);
            assert!(windows.iter().all(|window| kept(window) <= bound));
            assert_eq!(windows.concat(), expected, "size {size}");
        }
    }
}
