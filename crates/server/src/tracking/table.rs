//! Which clients have read which keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Default)]
pub struct Table {
    readers: HashMap<Box<[u8]>, Entry>,
    /// The keys by when they came in: the oldest go first when they become too many.
    by_age: BTreeMap<u64, Box<[u8]>>,
    next: u64,
    items: usize,
}

struct Entry {
    age: u64,
    clients: BTreeSet<u64>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    pub fn items(&self) -> usize {
        self.items
    }

    /// Whether it had not read it before.
    pub fn add(&mut self, name: &[u8], client: u64) -> bool {
        if let Some(entry) = self.readers.get_mut(name) {
            let is_new = entry.clients.insert(client);
            self.items += usize::from(is_new);
            return is_new;
        }
        let age = self.next;
        self.next += 1;
        self.by_age.insert(age, name.into());
        let clients = BTreeSet::from([client]);
        self.readers.insert(name.into(), Entry { age, clients });
        self.items += 1;
        true
    }

    /// Forgets a key, and tells who has read it.
    pub fn take(&mut self, name: &[u8]) -> BTreeSet<u64> {
        let Some(entry) = self.readers.remove(name) else {
            return BTreeSet::new();
        };
        self.by_age.remove(&entry.age);
        self.items -= entry.clients.len();
        entry.clients
    }

    /// The same for the key that has been there longest, if there are more than so many.
    pub fn take_oldest(&mut self, most: usize) -> Option<(Box<[u8]>, BTreeSet<u64>)> {
        if self.len() <= most {
            return None;
        }
        let (_, name) = self.by_age.pop_first()?;
        let clients = self.take(&name);
        Some((name, clients))
    }

    pub fn clear(&mut self) {
        let next = self.next;
        *self = Table::default();
        self.next = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_nothing_is_left_of_them() {
        let mut table = Table::default();
        for (name, client) in [("a", 1), ("b", 1), ("a", 2), ("a", 2), ("c", 3)] {
            table.add(name.as_bytes(), client);
        }
        assert_eq!((table.len(), table.items()), (3, 4));
        assert!(!table.add(b"b", 1) && table.add(b"b", 2));
        let oldest = table.take_oldest(2);
        assert_eq!(oldest, Some(((*b"a").into(), BTreeSet::from([1, 2]))));
        assert_eq!(table.take_oldest(2), None);
        assert_eq!(table.take(b"b"), BTreeSet::from([1, 2]));
        assert_eq!(table.take(b"b"), BTreeSet::new());
        table.add(b"b", 4);
        assert_eq!(
            table.take_oldest(1).map(|(name, _)| name),
            Some((*b"c").into())
        );
        assert_eq!((table.len(), table.items(), table.by_age.len()), (1, 1, 1));
    }
}
