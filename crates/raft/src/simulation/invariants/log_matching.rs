//! If two logs have an entry of the same term at the same index, they are the same up to there, as far as both still have it.

use std::collections::BTreeMap;

use cairn_encoding::raft::Entry;

use crate::log::Rows;
use crate::simulation::cluster::{Cluster, REGION};

type Log = BTreeMap<u64, Vec<u8>>;

pub(super) fn check(cluster: &Cluster) {
    let hardware = cluster.hardware.lock();
    let logs: Vec<Log> = hardware
        .values()
        .map(|hardware| {
            let rows = hardware.rows.entries(REGION, 0, u64::MAX, usize::MAX);
            rows.unwrap().into_iter().collect()
        })
        .collect();
    for (place, log) in logs.iter().enumerate() {
        logs[..place].iter().for_each(|other| compare(log, other));
    }
}

fn compare(log: &Log, other: &Log) {
    let mut agree = false;
    for (index, row) in log.iter().rev() {
        let Some(other) = other.get(index) else {
            continue;
        };
        // How long a log has grown is each replica's own affair.
        let [own, other] = [row, other].map(|row| Entry::decode(row).unwrap());
        agree |= own.term == other.term;
        let is_same = (own.term, own.body) == (other.term, other.body);
        assert!(!agree || is_same, "two logs differ at {index}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_encoding::raft::Body;

    fn log(terms: &[u64]) -> Log {
        let entries = terms.iter().enumerate().map(|(index, term)| {
            let mut row = Vec::new();
            let entry = Entry {
                term: *term,
                bytes: 0,
                body: Body::Blank,
            };
            entry.encode(&mut row);
            (index as u64, row)
        });
        entries.collect()
    }

    #[test]
    fn tails_may_differ() {
        compare(&log(&[1, 1, 2, 2]), &log(&[1, 1, 3]));
        compare(&log(&[1, 1]), &log(&[]));
    }

    #[test]
    #[should_panic(expected = "two logs differ at 1")]
    fn what_lies_before_a_common_entry_may_not() {
        compare(&log(&[1, 1, 3]), &log(&[1, 2, 3]));
    }
}
