//! CLIENT TRACKING and its like: what a client keeps copies of.

use cairn_resp::{Reply, number};
use cairn_store::{Error, Result};

use super::args::{Args, is};
use super::printable;
use crate::session::Session;
use crate::tracking::{Asked, Tracker};

/// What CLIENT TRACKING was told.
#[derive(Default)]
struct Options<'a> {
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
    is_by_prefix: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    is_spared: bool,
}

impl<'a> Options<'a> {
    fn parse(session: &Session, args: &Args<'a>) -> Result<Options<'a>> {
        let mut parsed = Options::default();
        let mut options = args.options(3);
        while let Some(option) = options.next() {
            if is(option, "redirect") && !options.is_empty() {
                if parsed.redirect != 0 {
                    return Err(Error::fixed(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let id = number::parse_i64(options.value()?).ok_or(Error::NOT_INTEGER)?;
                let other = u64::try_from(id).ok();
                let other = other.and_then(|id| session.server.clients.get(id));
                let other = other.ok_or(Error::fixed(
                    "ERR The client ID you want redirect to does not exist",
                ))?;
                parsed.redirect = other.id;
            } else if is(option, "bcast") {
                parsed.is_by_prefix = true;
            } else if is(option, "optin") {
                parsed.is_opt_in = true;
            } else if is(option, "optout") {
                parsed.is_opt_out = true;
            } else if is(option, "noloop") {
                parsed.is_spared = true;
            } else if is(option, "prefix") && !options.is_empty() {
                parsed.prefixes.push(options.value()?);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(parsed)
    }

    /// Whether the options go together, and with what the client has asked for before.
    fn check(&self, before: Option<&Tracker>, was_by_prefix: bool) -> Result<()> {
        let error = |text| Err(Error::fixed(text));
        if !self.is_by_prefix && !self.prefixes.is_empty() {
            return error("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if before.is_some() && was_by_prefix != self.is_by_prefix {
            return error(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            );
        }
        if self.is_by_prefix && (self.is_opt_in || self.is_opt_out) {
            return error("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.is_opt_in && self.is_opt_out {
            return error("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let asked = before.map_or(Asked::Always, |before| before.asked);
        if self.is_opt_in && asked == Asked::UnlessSaid || self.is_opt_out && asked == Asked::IfSaid
        {
            return error(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            );
        }
        self.check_prefixes(before)
    }

    /// No prefix may begin like another of the same client.
    fn check_prefixes(&self, before: Option<&Tracker>) -> Result<()> {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let mut existing = before.into_iter().flat_map(|before| &before.prefixes);
            if let Some(existing) = existing.find(|existing| overlap(prefix, existing)) {
                return Err(overlapping(prefix, "an existing", existing));
            }
            let mut others = self.prefixes[at + 1..].iter();
            if let Some(other) = others.find(|other| overlap(prefix, other)) {
                return Err(overlapping(prefix, "another provided", other));
            }
        }
        Ok(())
    }

    fn asked(&self) -> Asked {
        match (self.is_opt_in, self.is_opt_out) {
            (true, _) => Asked::IfSaid,
            (_, true) => Asked::UnlessSaid,
            _ => Asked::Always,
        }
    }
}

fn overlapping(prefix: &[u8], which: &str, other: &[u8]) -> Error {
    let (prefix, other) = (printable(prefix, usize::MAX), printable(other, usize::MAX));
    Error::reply(format!(
        "ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client \
         must not overlap."
    ))
}

pub fn tracking(session: &mut Session, args: &Args) -> Result<Reply> {
    let options = Options::parse(session, args)?;
    if is(args[2], "off") {
        session.tracker = None;
        return Ok(Reply::Ok);
    }
    if !is(args[2], "on") {
        return Err(Error::SYNTAX);
    }
    let was_by_prefix = session.client.tracking.is_by_prefix();
    options.check(session.tracker.as_deref(), was_by_prefix)?;
    let (all, client) = (session.server.tracking.clone(), session.client.clone());
    let tracker = session
        .tracker
        .get_or_insert_with(|| Box::new(Tracker::start(all, client)));
    let asked = options.asked();
    tracker.set(
        options.redirect,
        options.is_by_prefix,
        options.is_spared,
        asked,
    );
    if options.is_by_prefix && options.prefixes.is_empty() {
        tracker.add_prefix(b"");
    }
    for prefix in options.prefixes {
        tracker.add_prefix(prefix);
    }
    Ok(Reply::Ok)
}

pub fn caching(session: &mut Session, args: &Args) -> Result<Reply> {
    let Some(tracker) = &mut session.tracker else {
        return Err(Error::fixed(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ));
    };
    let (is_right, text) = if is(args[2], "yes") {
        (
            tracker.asked == Asked::IfSaid,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        )
    } else if is(args[2], "no") {
        (
            tracker.asked == Asked::UnlessSaid,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        )
    } else {
        return Err(Error::SYNTAX);
    };
    if !is_right {
        return Err(Error::fixed(text));
    }
    tracker.is_said = true;
    Ok(Reply::Ok)
}

pub fn getredir(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(Reply::Int(session.client.tracking.shown_redirect()))
}

pub fn trackinginfo(session: &mut Session, _: &Args) -> Result<Reply> {
    let state = &session.client.tracking;
    let mut flags: Vec<Reply> = Vec::new();
    let mut prefixes = Vec::new();
    match &session.tracker {
        None => flags.push("off".into()),
        Some(tracker) => {
            let said = |word: &'static str| tracker.is_said.then_some(word);
            let asked = match tracker.asked {
                Asked::Always => [None, None],
                Asked::IfSaid => [Some("optin"), said("caching-yes")],
                Asked::UnlessSaid => [Some("optout"), said("caching-no")],
            };
            let shown = [
                Some("on"),
                state.is_by_prefix().then_some("bcast"),
                asked[0],
                asked[1],
                tracker.is_spared().then_some("noloop"),
                state.is_broken().then_some("broken_redirect"),
            ];
            flags.extend(shown.into_iter().flatten().map(Reply::from));
            prefixes.extend(tracker.prefixes.iter().cloned().map(Reply::bulk));
        }
    }
    Ok(Reply::Map(vec![
        ("flags".into(), Reply::Set(flags)),
        ("redirect".into(), Reply::Int(state.shown_redirect())),
        ("prefixes".into(), Reply::Array(prefixes)),
    ]))
}
