//! Users as text: the ACL file, and `user` of the configuration file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Result as IoResult, Write};
use std::path::Path;
use std::sync::Arc;

use super::rules::{Wrong, join_selectors};
use super::selector::has_space;
use super::words;
use super::{Acl, DEFAULT, Rules, User};

type Loaded = BTreeMap<Vec<u8>, Rules>;

impl Acl {
    /// Replaces all users by those of the file; or none, if there is anything wrong with it, which is told. Returns
    /// the users that were there before. `shown` is the file's name as it was given.
    pub fn load(&self, path: &Path, shown: &str) -> Result<Vec<Arc<User>>, String> {
        let text = fs::read(path).map_err(|error| {
            format!(
                "Error loading ACLs, opening file '{shown}': {}",
                cause(&error)
            )
        })?;
        let loaded = read(&text, shown, self.allows_channels())?;
        Ok(self.replace(loaded))
    }

    /// Writes all users into the file, which changes at once or not at all.
    pub fn save(&self, path: &Path) -> IoResult<()> {
        let mut text = self.describe().join(&b'\n');
        text.push(b'\n');
        let mut temporary = path.to_owned().into_os_string();
        temporary.push(".new");
        let mut file = fs::File::create(&temporary)?;
        if let Ok(metadata) = fs::metadata(path) {
            file.set_permissions(metadata.permissions())?;
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The folder of a mere name is an empty path.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Takes the users of the configuration: each is a name and rules.
    pub fn configure(&self, users: &[String]) -> Result<(), String> {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for user in users {
            let mut words = words::of_text(user);
            if words.is_empty() {
                return Err("user: the name is missing".into());
            }
            let user = words.remove(0);
            let name = String::from_utf8_lossy(&user);
            if seen.contains(&user) {
                return Err(format!(
                    "user {name}: Duplicate user found. A user can only be defined once in config files"
                ));
            }
            seen.push(user.clone());
            let mut rules: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            if user == DEFAULT {
                rules.insert(0, b"reset");
            }
            let changed = self
                .set(&user, &rules)
                .map_err(|error| format!("user {name}: {}", String::from_utf8_lossy(&error)))?;
            if !changed.user.rules().is_on {
                tracing::info!(
                    "The user '{name}' is disabled (there is no 'on' modifier in the user \
                     description). Make sure this is not a configuration error."
                );
            }
        }
        Ok(())
    }
}

/// What C calls an error, which is what Redis shows.
fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_string(),
        None => text,
    }
}

/// The users of a file; or all that is wrong with it, in one line.
fn read(text: &[u8], shown: &str, allows_channels: bool) -> Result<Loaded, String> {
    let mut loaded = Loaded::new();
    let mut errors = String::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        read_line(
            &words,
            shown,
            at + 1,
            allows_channels,
            &mut loaded,
            &mut errors,
        );
    }
    if errors.is_empty() {
        return Ok(loaded);
    }
    errors.push_str(
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
    );
    Err(errors)
}

fn read_line(
    words: &[&[u8]],
    shown: &str,
    number: usize,
    allows_channels: bool,
    loaded: &mut Loaded,
    errors: &mut String,
) {
    let [b"user", name, words @ ..] = words else {
        errors.push_str(&format!(
            "{shown}:{number} should start with user keyword followed by the username. "
        ));
        return;
    };
    let shown_name = String::from_utf8_lossy(name);
    if has_space(name) {
        errors.push_str(&format!(
            "'{shown}:{number}: username '{shown_name}' contains invalid characters. "
        ));
        return;
    }
    if loaded.contains_key(*name) {
        errors.push_str(&format!(
            "WARNING: Duplicate user '{shown_name}' found on line {number}. "
        ));
        return;
    }
    let mut user = Rules::new(allows_channels);
    let mut has_wrong_syntax = false;
    match join_selectors(words) {
        Err(_) => errors.push_str(&format!(
            "{shown}:{number}: Unmatched parenthesis in selector definition."
        )),
        Ok(rules) => {
            for rule in rules {
                let rule = rule.trim_ascii();
                match user.apply(rule, allows_channels) {
                    Ok(()) => {}
                    // A name is no secret.
                    Err(wrong @ Wrong::Unknown) => errors.push_str(&format!(
                        "{shown}:{number}: Error in applying operation '{}': {}. ",
                        String::from_utf8_lossy(rule),
                        wrong.text()
                    )),
                    // What follows the first may be wrong because of it.
                    Err(wrong) if !has_wrong_syntax => {
                        errors.push_str(&format!("{shown}:{number}: {}. ", wrong.text()));
                        has_wrong_syntax = true;
                    }
                    Err(_) => {}
                }
            }
        }
    }
    loaded.insert(name.to_vec(), user);
}
