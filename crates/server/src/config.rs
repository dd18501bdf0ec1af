//! Settings: flags, configuration file, and what CONFIG SET changes while running.
//!
//! Every parameter is declared once, in `table`: its names, what values it takes, its default, whether
//! it may change and what a change does. A value is kept as the text that CONFIG GET shows. Three parts
//! read them: [`Settings`] has those that hold for the whole run, typed; [`Live`] those that are looked
//! at often and may change; and [`Config`] has them all, for the CONFIG commands.

mod encodings;
mod file;
mod flags;
mod kind;
mod live;
mod log;
mod parameter;
mod special;
mod table;
mod values;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_resp::glob;
use cairn_store::SyncMode;
use parking_lot::{Mutex, RwLock};
use tokio_rustls::rustls::ServerConfig;

pub use encodings::{ENCODINGS, Small};
pub use flags::Flags;
pub use kind::Refusal;
pub use live::{Live, is_local};
pub use log::start as start_log;
pub use parameter::Change;
pub use values::Values;

use crate::acl::{Acl, words};
use crate::address::Address;
use crate::tls;
use crate::upstream::Master;

use parameter::Parameter;
use table::{PARAMETERS, find};

/// What the server is started with, and what stays so.
#[derive(Clone, Debug)]
pub struct Settings {
    pub dir: PathBuf,
    pub sync: SyncMode,
    /// None: a share of the machine's.
    pub memory: Option<usize>,
    /// None: one for every two cores.
    pub threads: Option<usize>,
    pub databases: u32,
    /// The most keys that the expirer deletes in one batch.
    pub expire_batch: usize,
    /// How long the expirer rests when nothing is due.
    pub expire_interval: Duration,
    /// Whether large collections come to be counted.
    pub rank_index: bool,
    /// Below this much free space writes are refused.
    pub min_free_disk: u64,
    /// Whether this is a node of a cluster, or waits to become one.
    pub cluster_enabled: bool,
    pub values: Values,
    /// Users beside the default one, each as its name and rules.
    pub users: Vec<String>,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
}

impl Settings {
    fn new(
        mut values: Values,
        users: Vec<String>,
        file: Option<PathBuf>,
    ) -> Result<Settings, String> {
        if !users.is_empty() && !values.get("aclfile").is_empty() {
            return Err("there are users in the configuration, and an ACL file: choose one".into());
        }
        let dir =
            std::path::absolute(values.text("dir")).map_err(|error| format!("dir: {error}"))?;
        // Tools that look for the files of a server do not know where it was started.
        if let (Some(at), Some(dir)) = (find(b"dir"), dir.to_str()) {
            values.set(at, dir.as_bytes()).map_err(Cow::into_owned)?;
        }
        let cluster_enabled = values.get("cluster-enabled") == b"yes";
        if cluster_enabled {
            check_cluster(&values)?;
        }
        let some = |number: u64| (number > 0).then_some(number as usize);
        Ok(Settings {
            dir,
            sync: match values.get("sync") {
                b"always" => SyncMode::Always,
                b"no" => SyncMode::No,
                _ => SyncMode::EverySecond,
            },
            memory: some(values.number("memory")),
            threads: some(values.number("threads")),
            databases: values.number("databases") as u32,
            expire_batch: values.number("expire-batch") as usize,
            expire_interval: Duration::from_millis(values.number("expire-interval-ms")),
            rank_index: values.get("rank-index") == b"yes",
            min_free_disk: values.number("min-free-disk"),
            cluster_enabled,
            values,
            users,
            file,
        })
    }
}

/// What a node of a cluster cannot be started with.
fn check_cluster(values: &Values) -> Result<(), String> {
    let number = |name| values.number(name);
    let millis = |name| Duration::from_millis(number(name));
    let times = cairn_raft::Config {
        election_timeout: millis("cluster-election-timeout"),
        heartbeat: millis("cluster-heartbeat"),
        ..cairn_raft::Config::default()
    };
    // The server would start, and none of its replicas.
    times.check().map_err(|why| {
        format!("cluster-heartbeat: with this cluster-election-timeout it cannot be: {why}")
    })?;
    if number("cluster-log-limit") < number("cluster-log-size") {
        return Err("cluster-log-limit: it is less than cluster-log-size".into());
    }
    let clients = match number("port") {
        0 => number("tls-port"),
        port => port,
    };
    if clients == 0 {
        return Err("port: a node of a cluster has a port for clients".into());
    }
    if number("cluster-port") == 0 && clients + 10_000 > u64::from(u16::MAX) {
        return Err(format!(
            "cluster-port: there is no port {}, so say which",
            clients + 10_000
        ));
    }
    Ok(())
}

impl Settings {
    pub fn max_clients(&self) -> usize {
        self.values.number("maxclients") as usize
    }

    /// The server to follow, if one is named.
    pub fn master(&self) -> Result<Option<Master>, String> {
        let text = self.values.text("replicaof");
        let words: Vec<&str> = text.split_whitespace().collect();
        let [host, port] = words[..] else {
            return match words.is_empty() {
                true => Ok(None),
                false => Err(format!("replicaof: '{text}' is not a host and a port")),
            };
        };
        if self.cluster_enabled {
            return Err("replicaof: a node of a cluster follows no other server".into());
        }
        let port = port
            .parse()
            .map_err(|_| format!("replicaof: '{port}' is not a port"))?;
        let host = host.to_string();
        Ok(Some(Master { host, port }))
    }

    /// Where the users are, if they are in a file of their own.
    pub fn acl_file(&self) -> Option<PathBuf> {
        match self.values.text("aclfile").as_str() {
            "" => None,
            path => Some(path.into()),
        }
    }

    /// The Unix socket to listen on, and its permissions.
    pub fn unix_socket(&self) -> Option<(PathBuf, u32)> {
        let permissions = self.values.text("unixsocketperm");
        let permissions = u32::from_str_radix(&permissions, 8).unwrap_or(0);
        match self.values.text("unixsocket").as_str() {
            "" => None,
            path => Some((path.into(), permissions)),
        }
    }

    pub fn set_max_clients(&mut self, count: usize) -> Result<(), String> {
        let at = find(b"maxclients").expect("a parameter of the table");
        let set = self.values.set(at, count.to_string().as_bytes());
        set.map_err(Cow::into_owned)
    }
}

/// All values while the server runs.
pub struct Config {
    values: RwLock<Values>,
    /// Held while somebody sets others, which may take a while.
    setting: Mutex<()>,
    file: Option<PathBuf>,
    /// Held while the file is rewritten.
    rewriting: Mutex<()>,
}

/// Why CONFIG SET changed nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum SetError {
    Unknown(Vec<u8>),
    /// The parameter by the name that was given, and what is wrong with it.
    Refused(Vec<u8>, Refusal),
}

impl Config {
    /// Takes the values over, and makes them take effect.
    pub fn new(settings: &Settings, live: &Live) -> Config {
        for (at, parameter) in PARAMETERS.iter().enumerate() {
            if let Some(apply) = parameter.apply {
                apply(live, settings.values.at(at));
            }
        }
        Config {
            values: RwLock::new(settings.values.clone()),
            setting: Mutex::new(()),
            file: settings.file.clone(),
            rewriting: Mutex::new(()),
        }
    }

    pub fn text(&self, name: &'static str) -> String {
        self.values.read().text(name)
    }

    pub fn address(&self) -> Address {
        self.values.read().address()
    }

    pub fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    /// The parameters that match any of the patterns, each once. A name without wildcards is answered
    /// under that very spelling.
    pub fn matching(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let values = self.values.read();
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |name: &[u8], at: usize| {
            if !found
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
            {
                let value = values.at(at);
                let shown = match PARAMETERS[at].shown {
                    Some(shown) => shown(value),
                    None => value.to_vec(),
                };
                found.push((name.to_vec(), shown));
            }
        };
        for pattern in patterns {
            if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
                if let Some(at) = find(pattern) {
                    add(pattern, at);
                }
                continue;
            }
            let shown = |(_, parameter): &(usize, &Parameter)| !parameter.is_hidden;
            for (at, parameter) in PARAMETERS.iter().enumerate().filter(shown) {
                for name in parameter.names() {
                    if glob::matches(pattern, name.as_bytes(), true) {
                        add(name.as_bytes(), at);
                    }
                }
            }
        }
        found
    }

    /// Whom the server follows from now on, which no parameter can say.
    pub fn note_master(&self, text: &str) {
        if let Some(at) = find(b"replicaof") {
            // It is text, whatever it is.
            let _ = self.values.write().set(at, text.as_bytes());
        }
    }

    /// Sets all of the parameters, or none. Where to listen is for `relisten` to change, which may fail.
    pub fn set(
        &self,
        pairs: &[(&[u8], &[u8])],
        live: &Live,
        relisten: impl FnOnce(Address) -> Result<(), String>,
    ) -> Result<(), SetError> {
        let _one_at_a_time = self.setting.lock();
        // Others may read meanwhile, and note whom the server follows: the loop that listens elsewhere waits for both.
        let before = self.values.read().clone();
        let mut changed = before.clone();
        let mut named = Vec::new();
        for &(name, text) in pairs {
            let at = find(name).ok_or_else(|| SetError::Unknown(name.to_vec()))?;
            check_change(name, at, &named, before.is_as_asked(at, text))?;
            named.push((at, name));
        }
        for ((at, name), (_, text)) in named.iter().zip(pairs) {
            let set = changed.set(*at, text);
            let set = set.and_then(|()| match PARAMETERS[*at].check {
                Some(check) => check(live, changed.at(*at)),
                None => Ok(()),
            });
            set.map_err(|refusal| SetError::Refused(name.to_ascii_lowercase(), refusal))?;
        }
        let is_of_tls = |(at, _): &&(usize, &[u8])| PARAMETERS[*at].name.starts_with("tls-");
        let tls_before = live.tls.load_full();
        if let Some((_, name)) = named.iter().find(is_of_tls) {
            let tls = tls_of(&changed).map_err(|reason| {
                tracing::warn!("{reason}");
                let refusal = "Unable to update TLS configuration. Check server logs.";
                SetError::Refused(name.to_ascii_lowercase(), refusal.into())
            })?;
            live.tls.store(tls);
        }
        let (from, to) = (before.address(), changed.address());
        if to != from {
            let name: &[u8] = match () {
                () if to.bind != from.bind => b"bind",
                () if to.port != from.port => b"port",
                () => b"tls-port",
            };
            relisten(to).map_err(|reason| {
                tracing::warn!("{reason}");
                live.tls.store(tls_before);
                let refusal = match name {
                    b"bind" => "Failed to bind to specified addresses.",
                    _ => "Unable to listen on this port. Check server logs.",
                };
                SetError::Refused(name.to_vec(), refusal.into())
            })?;
        }
        for (at, _) in &named {
            if let Some(apply) = PARAMETERS[*at].apply {
                apply(live, changed.at(*at));
            }
        }
        let mut values = self.values.write();
        for (at, _) in named {
            values.take_over(at, &changed);
        }
        Ok(())
    }

    /// Reads the files of TLS again; if there is anything wrong with them, all stays as it was.
    pub fn reload_tls(&self, live: &Live) -> Result<(), String> {
        let _one_at_a_time = self.setting.lock();
        live.tls.store(tls_of(&self.values.read())?);
        Ok(())
    }

    /// What is set now.
    pub fn with_values<T>(&self, read: impl FnOnce(&Values) -> T) -> T {
        read(&self.values.read())
    }

    /// Writes what is set now into the configuration file, and the users unless they have a file of their own.
    pub fn rewrite(&self, acl: &Acl) -> Result<(), String> {
        let Some(path) = &self.file else {
            return Err("The server is running without a config file".into());
        };
        let _one_at_a_time = self.rewriting.lock();
        let values = self.values.read().clone();
        let users = match values.get("aclfile") {
            b"" => acl.describe(),
            _ => Vec::new(),
        };
        let users = users.iter().map(|line| {
            let line = line.strip_prefix(b"user ").unwrap_or(line);
            words::to_text(line)
        });
        let users: Vec<String> = users.collect();
        file::rewrite(path, &values, &users)
            .map_err(|reason| format!("Rewriting config file: {reason}"))
    }
}

/// How encrypted connections are made, if there is a port for them.
fn tls_of(values: &Values) -> Result<Option<Arc<ServerConfig>>, String> {
    match values.number("tls-port") {
        0 => Ok(None),
        _ => tls::configure(values).map(Some),
    }
}

fn check_change(
    name: &[u8],
    at: usize,
    named: &[(usize, &[u8])],
    is_as_asked: bool,
) -> Result<(), SetError> {
    let refused = |reason: &'static str| Err(SetError::Refused(name.to_vec(), reason.into()));
    match PARAMETERS[at].change {
        Change::Immutable if is_as_asked => {}
        Change::Immutable => return refused("can't set immutable config"),
        Change::Protected => return refused("can't set protected config"),
        Change::Allowed => {}
    }
    // An alias beside its other name passes, as it does in Redis, and the last of the two wins.
    let is_again =
        |(other, spelled): &(usize, &[u8])| *other == at && spelled.eq_ignore_ascii_case(name);
    if named.iter().any(is_again) {
        return refused("duplicate parameter");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::Ordering;

    use super::*;

    fn config(live: &Live) -> Config {
        Config::new(
            &Settings::new(Values::default(), Vec::new(), None).unwrap(),
            live,
        )
    }

    fn nowhere(address: Address) -> Result<(), String> {
        panic!("{address:?} was not asked for")
    }

    #[test]
    fn where_to_listen_changes_if_it_can() {
        let live = Live::new(Arc::default(), Arc::default());
        let config = config(&live);
        let to = |address: Address| {
            // Whoever listens may look at the settings before it does so elsewhere, and may wait for those who note others.
            assert_eq!(config.text("timeout"), "0");
            config.note_master("elsewhere 6379");
            match address.port {
                7000 => Ok(()),
                port => Err(format!("{port} is taken")),
            }
        };
        config.set(&[(b"port", b"7000")], &live, to).unwrap();
        assert_eq!(config.text("replicaof"), "elsewhere 6379");
        let refused = config.set(&[(b"timeout", b"7"), (b"port", b"7001")], &live, to);
        let reason = "Unable to listen on this port. Check server logs.".into();
        assert_eq!(refused, Err(SetError::Refused(b"port".to_vec(), reason)));
        let address = config.address();
        assert_eq!((address.bind.as_str(), address.port), ("127.0.0.1", 7000));
        assert_eq!(config.text("timeout"), "0", "all or nothing");
        config.set(&[(b"port", b"7000")], &live, nowhere).unwrap();
    }

    fn names(config: &Config, patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        let found = config.matching(&patterns).into_iter();
        found
            .map(|(name, _)| String::from_utf8(name).unwrap())
            .collect()
    }

    #[test]
    fn patterns_find_each_parameter_once_under_each_of_its_names() {
        let config = config(&Live::new(Arc::default(), Arc::default()));
        let found = names(&config, &["hash-max-*"]);
        assert_eq!(found.len(), 4);
        assert_eq!(
            names(&config, &["TIMEOUT", "timeout", "timeou[t]"]),
            ["TIMEOUT"]
        );
        assert_eq!(names(&config, &["MAXMEMOR?"]), ["maxmemory"]);
        assert!(names(&config, &["bogus", "bogus*", "["]).is_empty());
        assert!(
            names(&config, &["key-load-dela?"]).is_empty(),
            "it is hidden"
        );
        assert_eq!(names(&config, &["Key-Load-Delay"]), ["Key-Load-Delay"]);
    }

    #[test]
    fn all_are_set_or_none() {
        let live = Live::new(Arc::default(), Arc::default());
        let config = config(&live);
        config
            .set(&[(b"timeout", b"7"), (b"maxclients", b"5")], &live, nowhere)
            .unwrap();
        assert_eq!(live.timeout.load(Ordering::Relaxed), 7);
        assert_eq!(live.max_clients.load(Ordering::Relaxed), 5);
        let error = config.set(&[(b"timeout", b"8"), (b"maxclients", b"0")], &live, nowhere);
        let reason = "argument must be between 1 and 4294967295 inclusive".into();
        assert_eq!(
            error,
            Err(SetError::Refused(b"maxclients".to_vec(), reason))
        );
        assert_eq!(live.timeout.load(Ordering::Relaxed), 7);
        assert_eq!(config.text("timeout"), "7");
    }

    #[test]
    fn what_is_wrong_first_is_what_is_told() {
        let live = Live::new(Arc::default(), Arc::default());
        let config = config(&live);
        let refused = |pairs: &[(&[u8], &[u8])]| config.set(pairs, &live, nowhere).unwrap_err();
        let immutable =
            |name: &[u8]| SetError::Refused(name.to_vec(), "can't set immutable config".into());
        assert_eq!(
            refused(&[(b"bogus", b"1"), (b"databases", b"2")]),
            SetError::Unknown(b"bogus".to_vec())
        );
        assert_eq!(
            refused(&[(b"databases", b"1"), (b"bogus", b"2")]),
            immutable(b"databases")
        );
        let again = SetError::Refused(b"MAXMEMORY".to_vec(), "duplicate parameter".into());
        assert_eq!(
            refused(&[(b"maxmemory", b"1"), (b"MAXMEMORY", b"2")]),
            again
        );
        let alias = (b"hash-max-ziplist-entries".as_slice(), b"8".as_slice());
        config
            .set(
                &[(b"hash-max-listpack-entries", b"7"), alias],
                &live,
                nowhere,
            )
            .unwrap();
        assert_eq!(config.text("hash-max-listpack-entries"), "8");
    }
}
