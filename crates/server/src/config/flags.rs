//! Flags of `cairn serve`: one for each parameter that has something to say in `--help`, and `--config`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Settings;
use super::file;
use super::kind::Refusal;
use super::parameter::Parameter;
use super::table::PARAMETERS;
use super::values::Values;

const CONFIG: &str = "config";
const USER: &str = "user";

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    config: Option<PathBuf>,
    /// Places in the table, with the text that was given.
    given: Vec<(usize, OsString)>,
    users: Vec<String>,
}

impl Flags {
    /// The settings to start with: the defaults, changed by the file, changed by the flags.
    pub fn load(self) -> Result<Settings, String> {
        let mut values = Values::default();
        let mut users = Vec::new();
        if let Some(path) = &self.config {
            users = file::load(path, &mut values)?;
        }
        users.extend(self.users);
        for (at, text) in &self.given {
            values
                .set(*at, text.as_bytes())
                .map_err(|refusal| format!("--{}: {refusal}", PARAMETERS[*at].name))?;
        }
        Settings::new(values, users, self.config)
    }
}

fn flags() -> impl Iterator<Item = (usize, &'static Parameter)> {
    let numbered = PARAMETERS.iter().enumerate();
    numbered.filter(|(_, parameter)| parameter.help.is_some())
}

fn help(parameter: &Parameter) -> String {
    let help = parameter.help.unwrap_or_default();
    match parameter.default {
        "" => help.to_string(),
        default => format!("{help} [default: {default}]"),
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file: TOML, with a key for each of these flags");
        let parameters = flags().map(|(_, parameter)| {
            Arg::new(parameter.name)
                .long(parameter.name)
                .aliases(parameter.alias)
                .value_name("VALUE")
                .allow_hyphen_values(true)
                .value_parser(OsStringValueParser::new().try_map(|text| accepted(parameter, text)))
                .help(help(parameter))
        });
        let user = Arg::new(USER)
            .long(USER)
            .value_name("RULES")
            .action(ArgAction::Append)
            .help("A user, as in 'alice on >secret ~app:* +@all'; may be repeated");
        command.arg(config).args(parameters).arg(user)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Flags::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one(CONFIG).cloned();
        let given = flags().filter_map(|(at, parameter)| {
            let text: &OsString = matches.get_one(parameter.name)?;
            Some((at, text.clone()))
        });
        self.given = given.collect();
        let users = matches.get_many(USER).into_iter().flatten();
        self.users = users.cloned().collect();
        Ok(())
    }
}

/// Takes the text if it is a value of the parameter, so that clap can point at what is refused.
fn accepted(parameter: &Parameter, text: OsString) -> Result<OsString, Refusal> {
    let default = parameter.default.as_bytes();
    parameter.kind.read(text.as_bytes(), default)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::{Args, FromArgMatches};
    use std::time::Duration;

    use super::*;

    fn parse(words: &[&str]) -> Result<Flags, clap::Error> {
        let command = Flags::augment_args(Command::new("serve"));
        let matches = command.try_get_matches_from(std::iter::once(&"serve").chain(words))?;
        Flags::from_arg_matches(&matches)
    }

    #[test]
    fn flags_override_the_file_and_the_file_the_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cairn.toml");
        std::fs::write(&path, "port = 7000\ntimeout = 5\nthreads = 3\n").unwrap();
        let path = path.to_str().unwrap();
        let flags = parse(&["--config", path, "--port", "8000", "--memory", "1gb"]).unwrap();
        let settings = flags.load().unwrap();
        assert_eq!(settings.values.address().port, 8000);
        assert_eq!(settings.memory, Some(1 << 30));
        assert_eq!(settings.threads, Some(3));
        assert_eq!(settings.databases, 16);
        assert_eq!(settings.expire_interval, Duration::from_millis(100));
        assert_eq!(settings.values.number("timeout"), 5);
    }

    #[test]
    fn both_names_of_a_parameter_are_flags() {
        let settings = parse(&["--cluster-tls", "yes"]).unwrap().load().unwrap();
        assert_eq!(settings.values.get("tls-cluster"), b"yes");
    }

    #[test]
    fn a_node_of_a_cluster_is_told_what_cannot_be() {
        let load = |words: &[&str]| parse(words).unwrap().load();
        let heartbeat = &["--cluster-enabled", "yes", "--cluster-heartbeat", "501"];
        let refused = load(heartbeat).unwrap_err();
        assert!(refused.contains("cluster-heartbeat"), "{refused}");
        assert!(load(&heartbeat[2..]).is_ok(), "nobody asks on one machine");
        let times = |timeout: &str, heartbeat: &str| {
            let timeout = ["--cluster-election-timeout", timeout];
            let heartbeat = ["--cluster-heartbeat", heartbeat];
            load(&[&heartbeat[..], &timeout, &["--cluster-enabled", "yes"]].concat())
        };
        for (timeout, longest, too_long) in [("600", "239", "240"), ("5000", "1999", "2000")] {
            assert!(times(timeout, longest).is_ok(), "{timeout}");
            let refused = times(timeout, too_long).err().unwrap();
            assert!(refused.contains("two fifths"), "{refused}");
        }
        let refused = times("600", "250").err().unwrap();
        assert!(refused.contains("cluster-heartbeat"), "{refused}");
        let refused = load(&["--cluster-enabled", "yes", "--port", "60000"]).unwrap_err();
        assert!(refused.contains("cluster-port"), "{refused}");
        let logs = ["--cluster-enabled", "yes", "--cluster-log-limit", "1mb"];
        assert!(load(&logs).unwrap_err().contains("cluster-log-limit"));
    }

    #[test]
    fn a_wrong_value_is_pointed_at() {
        let error = parse(&["--port", "70000"]).unwrap_err().to_string();
        assert!(error.contains("--port"), "{error}");
        assert!(error.contains("must be between 0 and 65535"), "{error}");
        assert!(parse(&["--sync", "sometimes"]).is_err());
        assert!(parse(&["--maxmemory-samples", "1"]).is_err());
        let error = parse(&["--config", "/nowhere"])
            .unwrap()
            .load()
            .unwrap_err();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
