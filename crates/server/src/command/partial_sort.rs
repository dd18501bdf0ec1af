//! Sorting a part of a whole, so that equals come out as they do in Redis.
//!
//! Redis sorts with C's qsort, which keeps equals in their order, unless only a part of the result is wanted: then
//! with the quicksort of Bentley and McIlroy ("Engineering a Sort Function", 1993), which passes over the parts that
//! are not asked for. Where that leaves equals depends on every exchange that it makes, so it makes the same here.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::ops::Range;

/// Sorts so that `wanted` comes to hold what it would if all were sorted. The rest is in some order.
pub fn partial_sort<T>(
    items: &mut [T],
    wanted: Range<usize>,
    compare: impl Fn(&T, &T) -> Ordering,
) {
    if wanted.len() == items.len() {
        return items.sort_by(compare);
    }
    let patience = items.len().saturating_mul(PATIENCE);
    let mut sort = Sort {
        items,
        compare,
        patience,
    };
    sort.run(wanted);
}

/// A quicksort can be made to compare everything with everything. One that makes more comparisons than this for each
/// item is given up for one that cannot.
const PATIENCE: usize = 200;

struct Sort<'i, T, C> {
    items: &'i mut [T],
    compare: C,
    patience: usize,
}

impl<T, C: Fn(&T, &T) -> Ordering> Sort<'_, T, C> {
    fn run(&mut self, wanted: Range<usize>) {
        let mut left: Vec<Range<usize>> = std::iter::once(0..self.items.len()).collect();
        while let Some(part) = left.pop() {
            if part.len() < 7 {
                self.insert_each(part);
                continue;
            }
            if self.patience < part.len() {
                return self.items.sort_by(&self.compare);
            }
            self.patience -= part.len();
            let (below, above) = self.divide(part);
            // The first part is sorted first; that makes no difference but for the patience.
            for part in [above, below] {
                if part.len() > 1 && part.start < wanted.end && wanted.start < part.end {
                    left.push(part);
                }
            }
        }
    }

    fn order(&self, one: usize, other: usize) -> Ordering {
        (self.compare)(&self.items[one], &self.items[other])
    }

    fn insert_each(&mut self, part: Range<usize>) {
        for from in part.clone().skip(1) {
            let mut at = from;
            while at > part.start && self.order(at - 1, at) == Greater {
                self.items.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    fn median(&self, a: usize, b: usize, c: usize) -> usize {
        match (self.order(a, b), self.order(b, c)) {
            (Less, Less) | (Equal | Greater, Greater) => b,
            (Less, _) if self.order(a, c) == Less => c,
            (Less, _) => a,
            (_, _) if self.order(a, c) == Less => a,
            (_, _) => c,
        }
    }

    /// One item, or the median of three, or that of nine, according to how many there are.
    fn pivot(&self, part: &Range<usize>) -> usize {
        let (first, last) = (part.start, part.end - 1);
        let middle = part.start + part.len() / 2;
        match part.len() {
            ..=7 => middle,
            8..=40 => self.median(first, middle, last),
            many => {
                let gap = many / 8;
                let first = self.median(first, first + gap, first + 2 * gap);
                let middle = self.median(middle - gap, middle, middle + gap);
                let last = self.median(last - 2 * gap, last - gap, last);
                self.median(first, middle, last)
            }
        }
    }

    /// Puts what is less than some item before what equals it, and what is greater behind. Returns the two outer
    /// parts. What equals it is gathered at both ends meanwhile.
    fn divide(&mut self, part: Range<usize>) -> (Range<usize>, Range<usize>) {
        let (start, end) = (part.start, part.end);
        self.items.swap(start, self.pivot(&part));
        // Equal up to `equal_end`, less up to `less_end`; greater from `greater` on, equal from `equal` on.
        let (mut equal_end, mut less_end) = (start + 1, start + 1);
        let (mut greater, mut equal) = (end, end);
        loop {
            while less_end < greater {
                match self.order(less_end, start) {
                    Greater => break,
                    Equal => {
                        self.items.swap(equal_end, less_end);
                        equal_end += 1;
                    }
                    Less => {}
                }
                less_end += 1;
            }
            while less_end < greater {
                match self.order(greater - 1, start) {
                    Less => break,
                    Equal => {
                        equal -= 1;
                        self.items.swap(greater - 1, equal);
                    }
                    Greater => {}
                }
                greater -= 1;
            }
            if less_end >= greater {
                break;
            }
            self.items.swap(less_end, greater - 1);
            less_end += 1;
            greater -= 1;
        }
        let less = less_end - equal_end;
        let more = equal - greater;
        self.exchange(start, less_end, (equal_end - start).min(less));
        self.exchange(less_end, end, more.min(end - equal));
        (start..start + less, end - more..end)
    }

    /// Exchanges so many items from `first` on with as many before `end`.
    fn exchange(&mut self, first: usize, end: usize, count: usize) {
        for offset in 0..count {
            self.items.swap(first + offset, end - count + offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with the place they had at first, sorted by the number alone.
    fn numbered(keys: impl Iterator<Item = u32>) -> Vec<(u32, usize)> {
        keys.enumerate().map(|(place, key)| (key, place)).collect()
    }

    #[test]
    fn what_is_wanted_is_sorted() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..2000 {
            let length = random.usize(1..200);
            let kinds = random.u32(1..300);
            let items = numbered((0..length).map(|_| random.u32(..kinds)));
            let start = random.usize(..length);
            let wanted = start..random.usize(start..=length);
            let mut sorted = items.clone();
            sorted.sort();
            let mut partly = items.clone();
            partial_sort(&mut partly, wanted.clone(), |a, b| a.0.cmp(&b.0));
            let keys = |items: &[(u32, usize)]| -> Vec<u32> {
                items[wanted.clone()].iter().map(|item| item.0).collect()
            };
            assert_eq!(keys(&partly), keys(&sorted), "round {round}");
            partly.sort();
            assert_eq!(partly, sorted, "nothing is lost");
        }
    }

    #[test]
    fn all_of_it_keeps_equals_in_their_order() {
        let mut items = numbered([3, 1, 3, 1, 2, 1].into_iter());
        partial_sort(&mut items, 0..6, |a, b| a.0.cmp(&b.0));
        assert_eq!(items, [(1, 1), (1, 3), (1, 5), (2, 4), (3, 0), (3, 2)]);
    }

    /// Items that are compared so that the pivot is always the greatest or the least: McIlroy's adversary.
    #[test]
    fn an_adversary_does_not_take_long() {
        use std::cell::{Cell, RefCell};
        const COUNT: usize = 20_000;
        let unknown = COUNT;
        let values = RefCell::new(vec![unknown; COUNT]);
        let (settled, candidate, compared) = (Cell::new(0), Cell::new(0), Cell::new(0_usize));
        let mut items: Vec<usize> = (0..COUNT).collect();
        partial_sort(&mut items, 0..COUNT - 1, |&x, &y| {
            compared.set(compared.get() + 1);
            let mut values = values.borrow_mut();
            if values[x] == unknown && values[y] == unknown {
                let settles = if x == candidate.get() { x } else { y };
                values[settles] = settled.get();
                settled.set(settled.get() + 1);
            }
            if values[x] == unknown {
                candidate.set(x);
            } else if values[y] == unknown {
                candidate.set(y);
            }
            values[x].cmp(&values[y])
        });
        assert!(compared.get() < COUNT * 500, "{}", compared.get());
    }
}
