//! A hash table of rows.
//!
//! Open addressing with the hash beside the row: a lookup touches the slot and the row itself, which holds
//! key and value in one piece, and nothing else; to grow, or to move rows from one table to another, no
//! row is touched at all.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::access::{Access, Now};
use crate::expected::prefetch;
use crate::row::{Kind, Row};

/// The smallest table that is not empty: most batches find room in it.
const LEAST: usize = 64;
/// How often a row must be asked for to be as hot as can be.
const HOTTEST: u32 = 4;
/// A row that was asked for once is as cold as one that nobody asked for: all that a scan reads is asked for once, and
/// must not push out what others ask for again and again.
const COLD: u32 = 1;
/// What of a slot's state says how hot its row is; above it stands when the row was last used.
const HEAT: u32 = 0xff;
const ACCESS_AT: u32 = 8;
/// Of so many warm rows that the search for a cold one passes, one cools down. Many come and go while a hot set is
/// asked for once: those that are asked for again must not cool down each time room is made for others.
const PASSED_PER_COOLED: usize = 16;
/// The search for rows to evict goes over so many slots in a row, and on elsewhere. If it went round the table, it would
/// leave an empty part behind it and find an overfull one before it, where searches are long.
const IN_A_ROW: usize = 16;
/// Spreads numbers over a power of two: an odd number near its golden section.
const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;

#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) row: Option<Row>,
    hash: u32,
    /// The generation that the row is young in, and its place there: see `young`. Zero: in none.
    pub(crate) generation: u32,
    pub(crate) place: u32,
    /// How often it was asked for of late, which decides whether it stays in memory, and what is known of its last use, which
    /// is told to others: see `access`.
    state: AtomicU32,
}

impl Slot {
    /// Notes that the row was asked for. Counts that get lost do not matter.
    #[inline]
    pub(crate) fn warm(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state & HEAT < HOTTEST {
            self.state.store(state + 1, Ordering::Relaxed);
        }
    }

    /// The same for somebody who uses it, and does not only look on.
    #[inline]
    pub(crate) fn touch(&self) {
        let now = Now::read();
        if now.counts_uses() {
            return self.count_use(now);
        }
        let state = self.state.load(Ordering::Relaxed);
        let heat = (state & HEAT) + u32::from(state & HEAT < HOTTEST);
        let touched = now.second().bits() << ACCESS_AT | heat;
        if touched != state {
            self.state.store(touched, Ordering::Relaxed);
        }
    }

    #[cold]
    fn count_use(&self, now: Now) {
        self.warm();
        self.set_access(self.access().count(now));
    }

    pub(crate) fn access(&self) -> Access {
        Access::of_bits(self.state.load(Ordering::Relaxed) >> ACCESS_AT)
    }

    pub(crate) fn set_access(&self, access: Access) {
        let heat = self.state.load(Ordering::Relaxed) & HEAT;
        let state = access.bits() << ACCESS_AT | heat;
        self.state.store(state, Ordering::Relaxed);
    }

    fn is_cold(&mut self) -> bool {
        *self.state.get_mut() & HEAT <= COLD
    }

    fn cool(&mut self) {
        let state = self.state.get_mut();
        *state -= u32::from(*state & HEAT > COLD);
    }
}

/// A row that was taken out of a table to make room.
pub(crate) struct Evicted {
    pub(crate) row: Row,
    pub(crate) hash: u32,
    pub(crate) access: Access,
}

#[derive(Default)]
pub(crate) struct Table {
    /// A power of two, or none.
    slots: Box<[Slot]>,
    len: usize,
    /// Where the search for rows to evict goes on.
    hand: usize,
    /// How many warm rows it has passed.
    passed: usize,
}

impl Table {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Where the row is, or else where it would be.
    #[inline]
    fn place(&self, hash: u32, kind: Kind, key: &[u8]) -> usize {
        let mut at = hash as usize & self.mask();
        loop {
            let slot = &self.slots[at];
            match &slot.row {
                Some(row) if slot.hash != hash || !row.is(kind, key) => {}
                _ => return at,
            }
            at = (at + 1) & self.mask();
        }
    }

    #[inline]
    pub(crate) fn get(&self, hash: u32, kind: impl Into<Kind>, key: &[u8]) -> Option<&Slot> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = &self.slots[self.place(hash, kind.into(), key)];
        slot.row.is_some().then_some(slot)
    }

    /// A row, to be changed in its place: its hash, kind and key must stay.
    pub(crate) fn get_mut(
        &mut self,
        hash: u32,
        kind: impl Into<Kind>,
        key: &[u8],
    ) -> Option<&mut Row> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.place(hash, kind.into(), key);
        self.slots[at].row.as_mut()
    }

    #[inline]
    fn first_slot(&self, hash: u32) -> Option<&Slot> {
        self.slots
            .get(hash as usize & self.slots.len().wrapping_sub(1))
    }

    /// Has the slot brought near that a row of this hash most likely has.
    #[inline]
    pub(crate) fn expect_slot(&self, hash: u32) {
        if let Some(slot) = self.first_slot(hash) {
            prefetch(slot);
        }
    }

    /// Has the row brought near, once the slot is, which is returned: the first of this hash, and most likely the right one. None
    /// if there is no such row.
    #[inline]
    pub(crate) fn expect_row(&self, hash: u32) -> Option<&Slot> {
        let mut slot = self.first_slot(hash)?;
        let mut at = hash as usize;
        loop {
            let row = slot.row.as_ref()?;
            if slot.hash == hash {
                row.expect();
                return Some(slot);
            }
            at += 1;
            slot = &self.slots[at & self.mask()];
        }
    }

    /// Puts a row in its place; the one that was there is returned.
    pub(crate) fn put(&mut self, hash: u32, row: Row) -> (&mut Slot, Option<Row>) {
        let slot = self.slot_for(hash, row.kind(), row.key());
        let before = slot.row.replace(row);
        (slot, before)
    }

    /// The slot of a row. If the row is not there, the caller puts it there.
    #[inline]
    pub(crate) fn slot_for(&mut self, hash: u32, kind: Kind, key: &[u8]) -> &mut Slot {
        // A quarter stays free, so that searches stay short.
        if self.len >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let at = self.place(hash, kind, key);
        let slot = &mut self.slots[at];
        if slot.row.is_none() {
            self.len += 1;
            slot.hash = hash;
            slot.generation = 0;
            *slot.state.get_mut() = 0;
        }
        slot
    }

    fn grow(&mut self) {
        let larger = (self.slots.len() * 2).max(LEAST);
        let empty = (0..larger).map(|_| Slot::default()).collect();
        let slots = std::mem::replace(&mut self.slots, empty);
        for slot in slots.into_iter().filter(|slot| slot.row.is_some()) {
            let mut at = slot.hash as usize & self.mask();
            while self.slots[at].row.is_some() {
                at = (at + 1) & self.mask();
            }
            self.slots[at] = slot;
        }
        self.hand = 0;
    }

    pub(crate) fn remove(&mut self, hash: u32, kind: impl Into<Kind>, key: &[u8]) -> Option<Row> {
        self.remove_if(hash, kind, key, |_| true)
    }

    pub(crate) fn remove_if(
        &mut self,
        hash: u32,
        kind: impl Into<Kind>,
        key: &[u8],
        may_go: impl FnOnce(&Slot) -> bool,
    ) -> Option<Row> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.place(hash, kind.into(), key);
        may_go(&self.slots[at]).then(|| self.take(at)).flatten()
    }

    /// Empties a slot, and closes the gap, so that those behind it are still found.
    fn take(&mut self, at: usize) -> Option<Row> {
        let taken = self.slots[at].row.take()?;
        self.len -= 1;
        let mut gap = at;
        let mut next = (gap + 1) & self.mask();
        while self.slots[next].row.is_some() {
            let home = self.slots[next].hash as usize & self.mask();
            // It may move to the gap unless its search begins behind it.
            let from_home = next.wrapping_sub(home) & self.mask();
            let from_gap = next.wrapping_sub(gap) & self.mask();
            if from_home >= from_gap {
                self.slots.swap(gap, next);
                gap = next;
            }
            next = (next + 1) & self.mask();
        }
        Some(taken)
    }

    /// Takes out all rows that may go, and shows them.
    pub(crate) fn remove_where(
        &mut self,
        goes: impl Fn(&Slot, &Row) -> bool,
        mut gone: impl FnMut(&Row),
    ) {
        let mut at = 0;
        while at < self.slots.len() {
            let slot = &self.slots[at];
            let goes = slot.row.as_ref().is_some_and(|row| goes(slot, row));
            // The gap is closed with a row that may go as well: it is looked at again. What comes round the end has been
            // looked at before.
            match goes.then(|| self.take(at)).flatten() {
                Some(row) => gone(&row),
                None => at += 1,
            }
        }
    }

    /// Some rows that lie behind each other, from a place on: at most so many slots are looked at.
    pub(crate) fn some_from(
        &self,
        place: usize,
        slots: usize,
    ) -> impl Iterator<Item = (&Slot, &Row)> {
        let slots = slots.min(self.slots.len());
        let looked_at =
            (0..slots).map(move |step| &self.slots[place.wrapping_add(step) & self.mask()]);
        looked_at.filter_map(|slot| Some((slot, slot.row.as_ref()?)))
    }

    /// The slot that the search for rows to evict has come to.
    fn at_hand(&self) -> usize {
        let row = (self.hand / IN_A_ROW).wrapping_mul(SPREAD);
        (row.wrapping_mul(IN_A_ROW) + self.hand % IN_A_ROW) & self.mask()
    }

    /// Goes on over the table, lets some rows cool down, and takes out the next that is cold and may go; gives
    /// up after so many slots.
    pub(crate) fn evict(
        &mut self,
        most_slots: usize,
        may_go: impl Fn(&Slot) -> bool,
    ) -> Option<Evicted> {
        let rounds = (HOTTEST - COLD) as usize * PASSED_PER_COOLED + 1;
        let most_slots = most_slots.min(self.slots.len() * rounds);
        for _ in 0..most_slots {
            let at = self.at_hand();
            let slot = &mut self.slots[at];
            if slot.row.is_some() && may_go(slot) {
                if slot.is_cold() {
                    // The hand stays: the gap may have been closed with a row that it has not seen.
                    let (hash, access) = (slot.hash, slot.access());
                    let row = self.take(at)?;
                    return Some(Evicted { row, hash, access });
                }
                self.passed += 1;
                if self.passed.is_multiple_of(PASSED_PER_COOLED) {
                    slot.cool();
                }
            }
            self.hand += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::family::Family;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn row(key: u8, value: u8) -> Row {
        Row::new(Family::Data, &[key], Some(&[value]))
    }

    /// Few hashes, so that searches run into each other and round the end.
    fn hash(key: u8) -> u32 {
        u32::from(key % 7) + 12
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u8),
        Remove(u8),
        RemoveWhere(u8),
        Evict,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<(u8, u8)>().prop_map(|(key, value)| Step::Put(key % 40, value)),
            3 => any::<u8>().prop_map(|key| Step::Remove(key % 40)),
            1 => (2..6_u8).prop_map(Step::RemoveWhere),
            1 => Just(Step::Evict),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec(step(), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let (_, before) = table.put(hash(key), row(key, value));
                        let expected = map.insert(key, value);
                        prop_assert_eq!(before.map(|row| row.value().unwrap()[0]), expected);
                    }
                    Step::Remove(key) => {
                        let before = table.remove(hash(key), Family::Data, &[key]);
                        prop_assert_eq!(before.map(|row| row.value().unwrap()[0]), map.remove(&key));
                    }
                    Step::RemoveWhere(divisor) => {
                        let mut gone = 0;
                        let goes = |row: &Row| row.key()[0].is_multiple_of(divisor);
                        table.remove_where(|_, row| goes(row), |row| {
                            assert!(goes(row));
                            gone += 1;
                        });
                        let before = map.len();
                        map.retain(|key, _| !key.is_multiple_of(divisor));
                        prop_assert_eq!(gone, before - map.len());
                    }
                    Step::Evict => {
                        let evicted = table.evict(usize::MAX, |_| true);
                        prop_assert_eq!(evicted.is_some(), !map.is_empty());
                        if let Some(evicted) = evicted {
                            prop_assert!(map.remove(&evicted.row.key()[0]).is_some());
                        }
                    }
                }
                prop_assert_eq!(table.len(), map.len());
                for key in 0..40 {
                    let found = table.get(hash(key), Family::Data, &[key]);
                    let found = found.map(|slot| slot.row.as_ref().unwrap().value().unwrap()[0]);
                    prop_assert_eq!(found, map.get(&key).copied());
                }
            }
        }
    }

    /// A hundred hot rows in a table of 150: each is asked for once while 300 others, which are asked for when they come,
    /// come and go.
    #[test]
    fn what_is_asked_for_now_and_then_outlives_many_that_are_not() {
        let mut table = Table::default();
        let name = |number: u32| number.to_be_bytes();
        let spread = |number: u32| number.wrapping_mul(0x9e37_79b1) >> 7;
        let put = |table: &mut Table, number: u32| {
            let row = Row::new(Family::Data, &name(number), None);
            table.put(spread(number), row).0.warm();
            while table.len() > 150 {
                table.evict(usize::MAX, |_| true);
            }
        };
        let ask = |table: &Table, number: u32| {
            let slot = table.get(spread(number), Family::Data, &name(number));
            slot.inspect(|slot| slot.warm()).is_some()
        };
        for _ in 0..3 {
            for hot in 0..100 {
                if !ask(&table, hot) {
                    put(&mut table, hot);
                }
            }
        }
        let mut missing = 0;
        for other in 1000..31_000 {
            put(&mut table, other);
            if other % 3 == 0 && !ask(&table, other / 3 % 100) {
                missing += 1;
                put(&mut table, other / 3 % 100);
            }
        }
        assert!(missing < 500, "{missing} of 10,000");
    }

    /// Rows come and go in a table that is as full as can be.
    #[test]
    fn rows_lie_spread_over_the_table_however_many_come_and_go() {
        let mut table = Table::default();
        let most = 8192 / 4 * 3 - 1;
        let mut random = fastrand::Rng::with_seed(1);
        for number in 0..60_000_u32 {
            table.put(
                random.u32(..),
                Row::new(Family::Data, &number.to_be_bytes(), None),
            );
            while table.len() > most {
                table.evict(usize::MAX, |_| true);
            }
        }
        assert_eq!(table.slots.len(), 8192);
        let gaps = table.slots.split(|slot| slot.row.is_none());
        let longest = gaps.map(<[Slot]>::len).max().unwrap();
        assert!(longest < 300, "{longest}");
    }

    #[test]
    fn what_is_asked_for_stays_and_what_must_not_go_does_not() {
        let mut table = Table::default();
        for key in 0..100 {
            let (slot, _) = table.put(u32::from(key), row(key, 0));
            slot.generation = u32::from(key % 2);
        }
        for _ in 0..3 {
            for key in 0..10 {
                table.get(key, Family::Data, &[key as u8]).unwrap().warm();
            }
        }
        for _ in 0..45 {
            let row = table
                .evict(usize::MAX, |slot| slot.generation == 0)
                .unwrap()
                .row;
            assert!(row.key()[0] >= 10 && row.key()[0] % 2 == 0);
        }
    }
}
