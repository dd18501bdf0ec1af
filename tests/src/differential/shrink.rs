//! Makes a failing sequence as short as it gets while it still fails: fewer steps first, then fewer
//! and shorter arguments. Knows nothing of servers: it is handed the question "does this still fail?".

use std::ops::Range;

use super::fair::is_fair;
use super::round::Step;

/// Arguments up to this length are left as they are.
const SHORT: usize = 16;

pub fn shrink(steps: Vec<Step>, fails: &mut dyn FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut shrinker = Shrinker { best: steps, fails };
    shrinker.adopt_if(|step| step.connection = 0);
    shrinker.adopt_if(|step| step.pipelined = false);
    shrinker.drop_steps();
    for place in 0..shrinker.best.len() {
        shrinker.drop_arguments(place);
        shrinker.shorten_arguments(place);
    }
    shrinker.drop_steps();
    shrinker.best
}

struct Shrinker<'a> {
    best: Vec<Step>,
    fails: &'a mut dyn FnMut(&[Step]) -> bool,
}

impl Shrinker<'_> {
    fn adopt(&mut self, candidate: Vec<Step>) -> bool {
        let adopted = (self.fails)(&candidate);
        if adopted {
            self.best = candidate;
        }
        adopted
    }

    /// Tries one change of all steps at once.
    fn adopt_if(&mut self, change: impl Fn(&mut Step)) {
        let mut candidate = self.best.clone();
        candidate.iter_mut().for_each(change);
        if candidate != self.best {
            self.adopt(candidate);
        }
    }

    fn drop_steps(&mut self) {
        thin(0, self.best.len(), |run| {
            let mut candidate = self.best.clone();
            candidate.drain(run);
            self.adopt(candidate)
        });
    }

    /// All but the command's name may go.
    fn drop_arguments(&mut self, place: usize) {
        thin(1, self.best[place].argv.len(), |run| {
            let mut candidate = self.best.clone();
            candidate[place].argv.drain(run);
            is_fair(&candidate[place].argv) && self.adopt(candidate)
        });
    }

    fn shorten_arguments(&mut self, place: usize) {
        for argument in 1..self.best[place].argv.len() {
            // Halving finds the order of magnitude, and ever smaller cuts find the boundary.
            let mut cut = self.best[place].argv[argument].len() / 2;
            while cut > 0 && self.best[place].argv[argument].len() > SHORT {
                let mut candidate = self.best.clone();
                let word = &mut candidate[place].argv[argument];
                word.truncate(word.len().saturating_sub(cut));
                if !(is_fair(&candidate[place].argv) && self.adopt(candidate)) {
                    cut /= 2;
                }
            }
        }
    }
}

/// Offers ever shorter runs of `first..length` for removal, until not even one more can go.
fn thin(first: usize, mut length: usize, mut remove: impl FnMut(Range<usize>) -> bool) {
    let mut run = (length - first.min(length)).div_ceil(2);
    while run > 0 {
        let mut removed = false;
        let mut start = first;
        while start < length {
            let end = length.min(start + run);
            if remove(start..end) {
                length -= end - start;
                removed = true;
            } else {
                start = end;
            }
        }
        if run > 1 || !removed {
            run /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::words;
    use super::*;

    fn step(line: &str) -> Step {
        Step {
            connection: 1,
            argv: words(&line.split(' ').collect::<Vec<_>>()),
            pipelined: true,
        }
    }

    fn lines(steps: &[Step]) -> Vec<String> {
        let line = |step: &Step| String::from_utf8_lossy(&step.argv.join(&b' ')).into_owned();
        steps.iter().map(line).collect()
    }

    #[test]
    fn only_the_steps_that_matter_remain() {
        let steps: Vec<Step> = (0..500).map(|n| step(&format!("SET k{n} v"))).collect();
        let needs = |steps: &[Step], key: &str| lines(steps).contains(&format!("SET {key} v"));
        let shrunk = shrink(steps, &mut |steps| {
            needs(steps, "k17") && needs(steps, "k300") && needs(steps, "k499")
        });
        assert_eq!(lines(&shrunk), ["SET k17 v", "SET k300 v", "SET k499 v"]);
        assert!(
            shrunk
                .iter()
                .all(|step| step.connection == 0 && !step.pipelined)
        );
    }

    #[test]
    fn arguments_that_do_not_matter_go_too() {
        let shrunk = shrink(vec![step("HSET h a 1 b 2 c 3 d 4")], &mut |steps| {
            lines(steps)
                .iter()
                .any(|line| line.contains("HSET") && line.contains("c 3"))
        });
        assert_eq!(lines(&shrunk), ["HSET c 3"]);
    }

    #[test]
    fn a_long_argument_shrinks_to_the_length_that_fails() {
        let long = format!("APPEND k {}", "x".repeat(100_000));
        let shrunk = shrink(vec![step(&long)], &mut |steps| {
            steps
                .first()
                .is_some_and(|step| step.argv.len() == 3 && step.argv[2].len() >= 16_385)
        });
        assert_eq!(shrunk[0].argv[2].len(), 16_385);
    }

    #[test]
    fn shrinking_never_makes_a_command_unfair() {
        let only_fair_ones_tried = |line: &str, needed: &[&str]| {
            let mut all_fair = true;
            shrink(vec![step(line)], &mut |steps| {
                all_fair &= steps.iter().all(|step| is_fair(&step.argv));
                let line = lines(steps).concat();
                needed.iter().all(|word| line.contains(word))
            });
            all_fair
        };
        assert!(only_fair_ones_tried("SET k v EX soon 5", &["EX", "5"]));
        assert!(only_fair_ones_tried(
            "SETEX k 9223372036854775807 v",
            &["k 92", "v"]
        ));
    }
}
