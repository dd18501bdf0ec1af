//! How much memory the process uses, as its allocator counts.

use tikv_jemalloc_ctl::{epoch, raw, stats, version};

/// Bytes, each figure holding the one before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Asked for and not given back.
    pub allocated: u64,
    /// In pages that hold any of it.
    pub active: u64,
    /// Kept from the system.
    pub resident: u64,
}

impl Memory {
    /// As of now; zeroes if the allocator does not tell.
    pub fn now() -> Memory {
        // The allocator gathers its figures when it is told that a new epoch has begun.
        let read = || -> tikv_jemalloc_ctl::Result<Memory> {
            epoch::advance()?;
            Ok(Memory {
                allocated: stats::allocated::read()? as u64,
                active: stats::active::read()? as u64,
                resident: stats::resident::read()? as u64,
            })
        };
        read().unwrap_or_default()
    }

    /// The allocator's name and version, as INFO prints it.
    pub fn allocator() -> String {
        let whole = version::read().unwrap_or("unknown");
        let number = whole.split('-').next().unwrap_or(whole);
        format!("jemalloc-{number}")
    }

    /// What the allocator tells about itself, for people.
    pub fn report() -> String {
        let _ = epoch::advance();
        let figures = [
            ("allocated", stats::allocated::read()),
            ("active", stats::active::read()),
            ("metadata", stats::metadata::read()),
            ("resident", stats::resident::read()),
            ("mapped", stats::mapped::read()),
            ("retained", stats::retained::read()),
        ];
        let mut report = format!("{}\n", Memory::allocator());
        for (name, bytes) in figures {
            report += &format!("{name}: {} bytes\n", bytes.unwrap_or_default());
        }
        report
    }

    /// Has the allocator give back to the system what it keeps for later.
    ///
    /// Each arena is told to keep nothing, which makes it let go of what it has, and then to go on as before. Arenas
    /// that are not in use refuse, which does not matter.
    pub fn purge() {
        for arena in 0..arenas() {
            for kind in ["dirty", "muzzy"] {
                let name = format!("arena.{arena}.{kind}_decay_ms\0");
                if let Some(before) = decay(&name) {
                    set_decay(&name, 0);
                    set_decay(&name, before);
                }
            }
        }
    }

    /// Has the allocator keep what is freed for a time that goes with what the process may use. A compaction frees some
    /// hundred megabytes in a second, and to keep all of that for later is a large part of a small budget.
    pub fn keep_within(budget: usize) {
        let milliseconds =
            (budget / KEPT_A_MILLISECOND).clamp(SHORTEST_KEPT, LONGEST_KEPT) as isize;
        set_decay("arenas.dirty_decay_ms\0", milliseconds);
        for arena in 0..arenas() {
            set_decay(&format!("arena.{arena}.dirty_decay_ms\0"), milliseconds);
        }
    }
}

/// For so much of its budget the process keeps for a millisecond what was freed; within these limits.
const KEPT_A_MILLISECOND: usize = 1 << 20;
const SHORTEST_KEPT: usize = 100;
const LONGEST_KEPT: usize = 10_000;

fn arenas() -> u32 {
    // SAFETY: the name is terminated by a zero, and jemalloc's type of it is `unsigned`, 32 bits here.
    unsafe { raw::read(b"arenas.narenas\0") }.unwrap_or(0)
}

/// The setting of such a name, which ends with a zero; none if it is refused.
fn decay(name: &str) -> Option<isize> {
    assert!(name.ends_with("decay_ms\0"));
    // SAFETY: the name is terminated by a zero, and jemalloc's type of all that end so is `ssize_t`, which `isize` is.
    unsafe { raw::read(name.as_bytes()) }.ok()
}

fn set_decay(name: &str, milliseconds: isize) {
    assert!(name.ends_with("decay_ms\0"));
    // SAFETY: as above.
    let _ = unsafe { raw::write(name.as_bytes(), milliseconds) };
}
