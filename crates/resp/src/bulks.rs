//! Many byte strings in one piece of memory.

/// Takes two allocations, however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bulks {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Bulks {
    pub fn with_capacity(count: usize) -> Bulks {
        Bulks {
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
        }
    }

    #[inline]
    pub fn push(&mut self, bulk: &[u8]) {
        if self.ends.is_empty() {
            // The others are likely to be of the same length.
            self.bytes.reserve(bulk.len() * self.ends.capacity());
        }
        self.bytes.extend_from_slice(bulk);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for Bulks {
    fn from_iter<I: IntoIterator<Item = B>>(bulks: I) -> Bulks {
        let mut all = Bulks::default();
        bulks.into_iter().for_each(|bulk| all.push(bulk.as_ref()));
        all
    }
}
