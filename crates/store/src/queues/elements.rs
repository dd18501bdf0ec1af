//! Byte strings in one buffer, which costs them a few bytes each and no allocation.

use crate::expect::EXPECTED;

#[derive(Clone, Copy)]
struct Place {
    start: usize,
    len: usize,
}

#[derive(Default)]
pub(super) struct Elements {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// How many of the bytes are still in use: who is taken out leaves his behind.
    live: usize,
}

/// What an element takes beside its bytes.
pub(super) const OVERHEAD: usize = size_of::<Place>();

impl Elements {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// What is allocated.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * OVERHEAD
    }

    fn read(&self, place: Place) -> &[u8] {
        &self.bytes[place.start..place.start + place.len]
    }

    pub(super) fn get(&self, at: usize) -> Option<&[u8]> {
        self.places.get(at).map(|place| self.read(*place))
    }

    pub(super) fn last(&self) -> Option<&[u8]> {
        self.places.last().map(|place| self.read(*place))
    }

    pub(super) fn push(&mut self, element: &[u8]) {
        let is_full = self.bytes.capacity() - self.bytes.len() < element.len();
        if is_full && self.live < self.bytes.len() / 2 {
            self.tidy();
        }
        self.places.push(Place {
            start: self.bytes.len(),
            len: element.len(),
        });
        self.bytes.extend_from_slice(element);
        self.live += element.len();
    }

    /// Takes out the last one.
    pub(super) fn take_last<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let place = self.places.pop()?;
        let taken = read(self.read(place));
        self.live -= place.len;
        if self.places.is_empty() {
            *self = Elements::default();
        }
        Some(taken)
    }

    /// The same, if the last one comes next. Now and then those that come behind it are shown, as many as can be brought near at once.
    pub(super) fn take_next<T>(
        &mut self,
        read: impl FnOnce(&[u8]) -> T,
        show: impl FnMut(&[u8]),
    ) -> Option<T> {
        let taken = self.take_last(read)?;
        if self.places.len().is_multiple_of(EXPECTED) {
            let coming = self.places.iter().rev().take(EXPECTED);
            coming.map(|place| self.read(*place)).for_each(show);
        }
        Some(taken)
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.places.swap(one, other);
    }

    pub(super) fn reverse(&mut self) {
        self.places.reverse();
    }

    /// Leaves only those at these places, in this order, and no more memory than they need.
    pub(super) fn keep(&mut self, order: impl ExactSizeIterator<Item = usize>) {
        let mut places = Vec::with_capacity(order.len());
        places.extend(order.map(|at| self.places[at]));
        self.live = places.iter().map(|place| place.len).sum();
        self.places = places;
        self.tidy();
    }

    /// Leaves out the first so many.
    pub(super) fn keep_from(&mut self, first: usize) {
        self.keep(first..self.len());
    }

    /// Writes the bytes anew, without those that are not in use.
    fn tidy(&mut self) {
        let mut bytes = Vec::with_capacity(self.live);
        for place in &mut self.places {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[place.start..place.start + place.len]);
            place.start = start;
        }
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_out_makes_room_for_what_comes() {
        let mut elements = Elements::default();
        elements.push(&[b'x'; 100]);
        for number in 0..10_000_u32 {
            elements.push(&number.to_be_bytes());
            let taken = elements.take_last(<[u8]>::to_vec);
            assert_eq!(taken, Some(number.to_be_bytes().to_vec()));
        }
        assert_eq!(elements.last(), Some([b'x'; 100].as_slice()));
        assert!(elements.memory() < 1000, "{}", elements.memory());
    }

    #[test]
    fn each_is_shown_once_before_it_comes() {
        let mut elements = Elements::default();
        let all = 0..100_u8;
        all.clone()
            .rev()
            .for_each(|number| elements.push(&[number]));
        let mut shown = Vec::new();
        for number in all.clone() {
            let taken = elements.take_next(|element| element[0], |element| shown.push(element[0]));
            assert_eq!(taken, Some(number));
            assert!(shown.len() <= usize::from(number) + 1 + EXPECTED);
        }
        assert_eq!(elements.take_next(|_| (), |_| ()), None);
        // Nobody knew of the first ones.
        let first = 100 % EXPECTED as u8;
        assert_eq!(shown, Vec::from_iter(first..100));
    }

    #[test]
    fn the_rest_can_be_left_out() {
        let mut elements = Elements::default();
        for text in ["one", "", "three", "four"] {
            elements.push(text.as_bytes());
        }
        elements.keep([3, 0, 1].into_iter());
        assert_eq!(elements.memory(), "fourone".len() + 3 * OVERHEAD);
        elements.keep_from(1);
        for text in ["", "one"] {
            let taken = elements.take_last(<[u8]>::to_vec);
            assert_eq!(taken.as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(elements.memory(), 0);
    }
}
