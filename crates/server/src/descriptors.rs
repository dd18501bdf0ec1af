//! File descriptors: connections and tables of the database take one each, and the system has a limit.
//!
//! RocksDB stops writing when it cannot open a file. So what there is is shared out at the start:
//! connections beyond their share are refused, and tables beyond theirs are closed and opened again.

/// For the logs of the database, its directory, standard streams, event queues.
const RESERVE: usize = 128;
/// More tables than a database a hundred times the memory has. Keeping count of them costs each read a
/// little, and is not worth it where there is room for so many.
const PLENTY_OF_TABLES: usize = 8192;

/// Who may have how many.
#[derive(Debug, PartialEq, Eq)]
pub struct Shares {
    pub clients: usize,
    /// What `clients` may be raised to later.
    pub most_clients: usize,
    /// None: no need to keep count.
    pub tables: Option<usize>,
}

impl Shares {
    /// Shares out `limit` descriptors where `wanted` connections are wished for; None if the limit is
    /// too low to run with.
    fn of(limit: usize, wanted: usize) -> Option<Shares> {
        let room = limit.checked_sub(RESERVE)?;
        let clients = wanted.min(room - room / 4);
        let tables = room - clients;
        if tables >= PLENTY_OF_TABLES {
            return Some(Shares {
                clients,
                most_clients: room - PLENTY_OF_TABLES,
                tables: None,
            });
        }
        let shares = Shares {
            clients,
            most_clients: clients,
            tables: Some(tables),
        };
        (tables >= 16).then_some(shares)
    }

    /// Raises the limit as far as the system lets us, and shares it out.
    pub fn take(wanted: usize) -> Result<Shares, String> {
        let limit = raise_limit();
        let Some(shares) = Shares::of(limit, wanted) else {
            return Err(format!(
                "the limit of open files is {limit}, which is not enough to start: raise it with \
                 'ulimit -n'"
            ));
        };
        if shares.clients < wanted {
            tracing::warn!(
                "the limit of open files is {limit}: maxclients has been reduced from {wanted} to \
                 {}; for more, raise it with 'ulimit -n'",
                shares.clients
            );
        }
        Ok(shares)
    }
}

/// The limit of open files, after raising it to the highest that is allowed.
fn raise_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call gets a valid rlimit, which it writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        tracing::warn!("the limit of open files is not known");
        return usize::MAX;
    }
    let highest = libc::rlimit {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    // SAFETY: the call gets a valid rlimit, which it reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const highest) } == 0 {
        limit = highest;
    } else {
        tracing::warn!("the limit of open files could not be raised");
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_quarter_to_the_tables() {
        let shares = |clients, most_clients, tables| Shares {
            clients,
            most_clients,
            tables,
        };
        assert_eq!(
            Shares::of(1 << 20, 10_000),
            Some(shares(10_000, (1 << 20) - 128 - 8192, None))
        );
        assert_eq!(
            Shares::of(20_000, 10_000),
            Some(shares(10_000, 20_000 - 128 - 8192, None))
        );
        assert_eq!(
            Shares::of(10_128, 10_000),
            Some(shares(7500, 7500, Some(2500)))
        );
        assert_eq!(Shares::of(1128, 10), Some(shares(10, 10, Some(990))));
        assert_eq!(Shares::of(1128, 10_000), Some(shares(750, 750, Some(250))));
        assert_eq!(Shares::of(150, 10_000), None);
        assert_eq!(Shares::of(100, 10_000), None);
    }
}
