//! What a check counted.

use std::fmt;

use cairn_encoding::metadata::Type;
use cairn_engine::Family;

/// Rows that no client sees, and that the filters and the reclaimer will remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    pub of_dead_versions: u64,
    /// List rows outside `[head, tail)`, entries below the floor of their stream, and what says that fields expire that
    /// have expired.
    pub cut_off: u64,
    pub of_flushed_databases: u64,
    /// Strings of the old format whose key has been written since.
    pub superseded: u64,
    /// Of slots that no region here holds.
    pub of_other_nodes: u64,
}

impl Orphans {
    pub fn total(&self) -> u64 {
        self.of_dead_versions
            + self.cut_off
            + self.of_flushed_databases
            + self.superseded
            + self.of_other_nodes
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    keys: [u64; KINDS.len()],
    rows: [u64; Family::COUNT],
    pub orphans: Orphans,
    /// Rows written ahead of their metadata, and those where a snapshot is being installed.
    pub staged_rows: u64,
    /// Expiry rows whose key has another expiry by now, or none, or is gone.
    pub stale_expiry_rows: u64,
    pub violations: u64,
}

const KINDS: [Type; 6] = [
    Type::String,
    Type::Hash,
    Type::List,
    Type::Set,
    Type::ZSet,
    Type::Stream,
];

impl Summary {
    pub fn keys(&self, kind: Type) -> u64 {
        KINDS
            .iter()
            .position(|known| *known == kind)
            .map_or(0, |at| self.keys[at])
    }

    pub fn rows(&self, family: Family) -> u64 {
        self.rows[family as usize]
    }

    pub(super) fn count_key(&mut self, kind: Type) {
        if let Some(at) = KINDS.iter().position(|known| *known == kind) {
            self.keys[at] += 1;
        }
    }

    pub(super) fn count_row(&mut self, family: Family) {
        self.rows[family as usize] += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |parts: &mut dyn Iterator<Item = (&str, u64)>| {
            let parts = parts.map(|(name, count)| format!("{name} {count}"));
            parts.collect::<Vec<_>>().join(", ")
        };
        let kinds = listed(&mut KINDS.iter().map(|kind| (kind.name(), self.keys(*kind))));
        let families = listed(&mut Family::ALL.iter().map(|&family| {
            let count = self.rows(family);
            (family.name(), count)
        }));
        let orphans = listed(
            &mut [
                ("of dead versions", self.orphans.of_dead_versions),
                ("cut off", self.orphans.cut_off),
                ("of flushed databases", self.orphans.of_flushed_databases),
                ("superseded", self.orphans.superseded),
                ("of other nodes", self.orphans.of_other_nodes),
            ]
            .into_iter(),
        );
        let lines = [
            ("keys", self.keys.iter().sum(), kinds.as_str()),
            ("rows", self.rows.iter().sum(), &families),
            ("orphans", self.orphans.total(), &orphans),
            (
                "staged",
                self.staged_rows,
                "rows of versions and snapshots to come",
            ),
            (
                "stale",
                self.stale_expiry_rows,
                "expiry rows of an earlier time",
            ),
            ("violations", self.violations, ""),
        ];
        for (name, count, parts) in lines {
            let line = format!("{name:<10} {count:>12}   {parts}");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
