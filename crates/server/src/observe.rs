//! Who looks on while commands run: MONITOR, SLOWLOG and LATENCY.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use crate::client::Client;
use crate::command::{Args, Command, Flag};
use crate::server::Server;

/// A command has run.
pub struct Ran<'a> {
    pub client: &'a Client,
    /// The one selected when it had run.
    pub database: u32,
    pub command: &'static Command,
    pub args: &'a Args<'a>,
}

impl Ran<'_> {
    /// Shows it to those who monitor the server, if there are any.
    #[inline]
    pub fn show(&self, server: &Server) {
        if server.monitors.is_any() {
            self.show_as(server, &self.client.peer.origin());
        }
    }

    /// The same for one that is about to run, and is shown before what it runs in turn.
    #[inline]
    pub fn announce(&self, server: &Server) {
        if server.monitors.is_any() {
            self.feed(server, &self.client.peer.origin());
        }
    }

    /// The same for a command that a script ran.
    pub fn show_of_script(&self, server: &Server) {
        self.show_as(server, "lua");
    }

    #[cold]
    fn show_as(&self, server: &Server, origin: &str) {
        // What administrators do may hold secrets.
        if !self.command.has(Flag::Admin) && !self.command.has(Flag::SkipMonitor) {
            self.feed(server, origin);
        }
    }

    #[cold]
    fn feed(&self, server: &Server, origin: &str) {
        let words = redacted(self.command, self.args);
        let limits = &server.live.output_limits;
        server.monitors.show(limits, self.database, origin, &words);
    }

    /// Takes note of it if it took long.
    #[inline]
    pub fn time(&self, server: &Server, nanoseconds: u64) {
        let noteworthy = server.live.noteworthy_us.load(Ordering::Relaxed);
        if nanoseconds / 1000 >= noteworthy {
            self.note(server, Duration::from_nanos(nanoseconds));
        }
    }

    #[cold]
    fn note(&self, server: &Server, took: Duration) {
        let live = &server.live;
        let slow_us = live.slow_us.load(Ordering::Relaxed);
        if took.as_micros() as u64 >= slow_us && !self.command.has(Flag::SkipSlowlog) {
            let words = redacted(self.command, self.args);
            let most = live.slowlog_len.load(Ordering::Relaxed);
            server.slowlog.add(self.client, &words, took, most);
        }
        let spike_ms = live.spike_ms.load(Ordering::Relaxed);
        if spike_ms > 0 && took.as_millis() as u64 >= spike_ms {
            let is_fast = self.command.has(Flag::Fast);
            let event = if is_fast { "fast-command" } else { "command" };
            server.spikes.add(event, took);
        }
    }
}

const HIDDEN: &[u8] = b"(redacted)";

/// The words of a command without its secrets.
fn redacted<'a>(command: &Command, args: &Args<'a>) -> SmallVec<[&'a [u8]; 8]> {
    let mut words: SmallVec<[&[u8]; 8]> = args.iter().copied().collect();
    let is = |word: &[u8], other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    match command.full_name {
        "auth" => words[1..].fill(HIDDEN),
        "acl|setuser" => words[2..].fill(HIDDEN),
        "hello" => {
            let mut at = 2;
            while let Some(option) = args.get(at) {
                let (behind, is_secret) = match option {
                    option if is(option, "auth") => (2, true),
                    option if is(option, "setname") => (1, false),
                    _ => (0, false),
                };
                if is_secret {
                    let hidden = words.iter_mut().skip(at + 1).take(behind);
                    hidden.for_each(|word| *word = HIDDEN);
                }
                at += 1 + behind;
            }
        }
        "migrate" => {
            let mut at = 6;
            while let Some(option) = args.get(at) {
                let secrets = match option {
                    option if is(option, "auth") => 1,
                    option if is(option, "auth2") => 2,
                    option if is(option, "keys") => break,
                    _ => 0,
                };
                let hidden = words.iter_mut().skip(at + 1).take(secrets);
                hidden.for_each(|word| *word = HIDDEN);
                at += 1 + secrets;
            }
        }
        "config|set" => {
            for at in (2..args.len().saturating_sub(1)).step_by(2) {
                let secrets = [
                    "requirepass",
                    "masterauth",
                    "masteruser",
                    "tls-key-file-pass",
                ];
                if secrets.iter().any(|name| is(args[at], name)) {
                    words[at + 1] = HIDDEN;
                }
            }
        }
        _ => {}
    }
    words
}
