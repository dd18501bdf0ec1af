//! The names of nodes, as clients know them: 40 hexadecimal digits.

/// Made from the numbers of cluster and node alone, so that every node knows the names of all. Two nodes never have the
/// same: the first 32 digits can be turned back into the numbers.
pub fn node_name(cluster: u64, node: u64) -> String {
    let whole = mix(cluster);
    let own = mix(node ^ whole);
    let rest = mix(own.rotate_left(32) ^ whole) as u32;
    format!("{own:016x}{whole:016x}{rest:08x}")
}

/// A permutation of all numbers, in which neighbours lie far apart: each step can be undone.
fn mix(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x6361_6972_6e21_0001);
    for multiplier in [0xd6e8_feb8_6659_fd93_u64, 0xa076_1d64_78bd_642f] {
        number ^= number >> 32;
        number = number.wrapping_mul(multiplier);
    }
    number ^ (number >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Clients remember these, so they must not change with a version.
    #[test]
    fn names_stay_the_same() {
        let name = "72cc0daad2a26a3f6e32f5aa1716c7e9206b0a9c";
        assert_eq!(node_name(1, 1), name);
    }

    #[test]
    fn names_differ() {
        let mut names = BTreeSet::new();
        let mut beginnings = BTreeSet::new();
        for cluster in 0..100 {
            for node in 0..100 {
                let name = node_name(cluster, node);
                assert_eq!(name.len(), 40);
                assert!(name.bytes().all(|digit| digit.is_ascii_hexdigit()));
                beginnings.insert(name[..8].to_string());
                names.insert(name);
            }
        }
        assert_eq!(names.len(), 10_000);
        // People see the first digits only.
        assert!(beginnings.len() > 9_990);
    }
}
