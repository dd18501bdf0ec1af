//! The configuration file: TOML, with a key for every parameter and no tables; and `user`, with a text or a list of
//! texts, each a user's name and rules.
//!
//! CONFIG REWRITE edits the file it was started with. A key that is there gets its new value where it
//! stands, a parameter that is not and has left its default is added at the end, and all else, comments
//! and order included, stays as it was.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::table::{PARAMETERS, find};
use super::values::Values;

/// One `key = value` of the file.
struct Entry {
    key: String,
    at_key: usize,
    value: String,
    /// Its elements, if it is a list.
    list: Option<Vec<String>>,
    at_value: Range<usize>,
}

const USER: &str = "user";

fn parse(source: &str) -> Result<Vec<Entry>, (usize, String)> {
    let table = DeTable::parse(source).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (at, error.message().to_string())
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let at_key = key.span().start;
        let value_text = text_of(value.get_ref())
            .map_err(|reason| (at_key, format!("{}: {reason}", key.get_ref())))?;
        entries.push(Entry {
            key: key.get_ref().to_string(),
            at_key,
            value: value_text,
            list: match value.get_ref() {
                DeValue::Array(elements) => elements
                    .iter()
                    .map(|element| text_of(element.get_ref()).ok())
                    .collect(),
                _ => None,
            },
            at_value: value.span(),
        });
    }
    // The parser keeps keys by name; errors should come in the order of the lines.
    entries.sort_by_key(|entry| entry.at_key);
    Ok(entries)
}

/// A value as a flag would have it: `true` is yes, and an array is its elements with blanks between.
fn text_of(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(true) => Ok("yes".into()),
        DeValue::Boolean(false) => Ok("no".into()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().into()),
        DeValue::Float(number) => Ok(number.as_str().into()),
        DeValue::Array(elements) => {
            let words = elements.iter().map(|element| text_of(element.get_ref()));
            Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
        }
        _ => Err("must be a string, a number, true or false".into()),
    }
}

/// Reads the file into `values`, and returns the users in it.
pub fn load(path: &Path, values: &mut Values) -> Result<Vec<String>, String> {
    let source = read(path)?;
    apply(&source, values)
        .map_err(|(line, reason)| format!("{}, line {line}: {reason}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn apply(source: &str, values: &mut Values) -> Result<Vec<String>, (usize, String)> {
    let mut users = Vec::new();
    let locate = |(at, reason): (usize, String)| (line_of(source, at), reason);
    for entry in parse(source).map_err(locate)? {
        let fail = |reason: String| locate((entry.at_key, reason));
        if entry.key == USER {
            users = entry.list.unwrap_or_else(|| vec![entry.value]);
            continue;
        }
        let at = find(entry.key.as_bytes())
            .ok_or_else(|| fail(format!("there is no parameter '{}'", entry.key)))?;
        values
            .set(at, entry.value.as_bytes())
            .map_err(|refusal| fail(format!("{}: {refusal}", entry.key)))?;
    }
    Ok(users)
}

fn line_of(source: &str, at: usize) -> usize {
    let before = source.as_bytes().get(..at).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Writes the values into the file, which changes at once or not at all.
pub fn rewrite(path: &Path, values: &Values, users: &[String]) -> Result<(), String> {
    let fail = |error: std::io::Error| error.to_string();
    let path = fs::canonicalize(path).map_err(fail)?;
    let source = fs::read_to_string(&path).map_err(fail)?;
    let edited = edit(&source, values, users).map_err(|(_, reason)| reason)?;
    let mut temporary = path.clone().into_os_string();
    temporary.push(".new");
    let mut file = fs::File::create(&temporary).map_err(fail)?;
    file.set_permissions(fs::metadata(&path).map_err(fail)?.permissions())
        .map_err(fail)?;
    file.write_all(edited.as_bytes()).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    fs::rename(&temporary, &path).map_err(fail)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(fail)
}

/// No users are those of a server that has no list of them: then one that is there is left alone.
fn edit(source: &str, values: &Values, users: &[String]) -> Result<String, (usize, String)> {
    let mut edited = source.to_string();
    let mut is_listed = vec![false; PARAMETERS.len()];
    let mut lists_users = false;
    // From the end, so that the places of those before stay right.
    for entry in parse(source)?.into_iter().rev() {
        if entry.key == USER {
            lists_users = true;
            if !users.is_empty() && entry.list.as_deref() != Some(users) {
                edited.replace_range(entry.at_value, &user_list(users));
            }
            continue;
        }
        let Some(at) = find(entry.key.as_bytes()) else {
            continue;
        };
        is_listed[at] = true;
        let mut stands_for = values.clone();
        let is_same = stands_for.set(at, entry.value.as_bytes()).is_ok() && stands_for == *values;
        if !is_same {
            edited.replace_range(entry.at_value, &literal(at, values.at(at)));
        }
    }
    let mut add = |name: &str, value: String| {
        if !edited.is_empty() && !edited.ends_with('\n') {
            edited.push('\n');
        }
        edited.push_str(&format!("{name} = {value}\n"));
    };
    for (at, parameter) in PARAMETERS.iter().enumerate() {
        if !is_listed[at] && values.at(at) != parameter.default.as_bytes() {
            add(parameter.name, literal(at, values.at(at)));
        }
    }
    if !lists_users && !users.is_empty() {
        add(USER, user_list(users));
    }
    Ok(edited)
}

fn user_list(users: &[String]) -> String {
    let mut list = String::from("[\n");
    for user in users {
        let user = toml::Value::String(user.clone());
        list.push_str(&format!("    {user},\n"));
    }
    list + "]"
}

fn literal(at: usize, value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    // A number above TOML's range is written as text, and read back as the number it is.
    if PARAMETERS[at].kind.is_number() && text.parse::<i64>().is_ok() {
        return text.into_owned();
    }
    toml::Value::String(text.into_owned()).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn loaded(source: &str) -> Values {
        let mut values = Values::default();
        apply(source, &mut values).unwrap();
        values
    }

    fn refused(source: &str) -> (usize, String) {
        apply(source, &mut Values::default()).unwrap_err()
    }

    #[test]
    fn every_form_of_value_is_read() {
        let values = loaded(
            "# comment\nport = 7000\nmemory = '2gb'\nappendonly = true\nmaxmemory = \"10mb\"\n\
             save = [900, 1]\nlatency-tracking-info-percentiles = 99.5\nhash-max-ziplist-value = 9\n",
        );
        assert_eq!(values.number("port"), 7000);
        assert_eq!(values.number("memory"), 2 << 30);
        assert_eq!(values.get("appendonly"), b"yes");
        assert_eq!(values.number("maxmemory"), 10 << 20);
        assert_eq!(values.get("save"), b"900 1");
        assert_eq!(values.get("latency-tracking-info-percentiles"), b"99.5");
        assert_eq!(values.number("hash-max-listpack-value"), 9);
    }

    #[test]
    fn errors_name_the_key_and_the_line() {
        let (line, reason) = refused("port = 1\n\nbogus = 2\n");
        assert_eq!(
            (line, reason.as_str()),
            (3, "there is no parameter 'bogus'")
        );
        let (line, reason) = refused("# one\nport = 70000\n");
        let expected = "port: argument must be between 0 and 65535 inclusive";
        assert_eq!((line, reason.as_str()), (2, expected));
        let (line, reason) = refused("port = 1\nsync = { a = 1 }\n");
        let expected = "sync: must be a string, a number, true or false";
        assert_eq!((line, reason.as_str()), (2, expected));
        assert_eq!(refused("port = 1\nport = 2\n").0, 2);
        assert_eq!(refused("port = 1\n\n[table]\nport = 2\n").0, 3);
        assert_eq!(refused("port = \n").0, 1);
    }

    #[test]
    fn rewriting_keeps_what_it_need_not_change() {
        let source = "# the port\nport = 7000 # here\n\nmaxmemory = '1mb'\ntimeout = 5\n";
        let mut values = loaded(source);
        assert_eq!(edit(source, &values, &[]).unwrap(), source);
        values.set(find(b"timeout").unwrap(), b"9").unwrap();
        values.set(find(b"maxmemory").unwrap(), b"2mb").unwrap();
        values
            .set(find(b"requirepass").unwrap(), b"a \"b\"")
            .unwrap();
        let edited = edit(source, &values, &[]).unwrap();
        let expected = "# the port\nport = 7000 # here\n\nmaxmemory = 2097152\ntimeout = 9\n\
                        requirepass = 'a \"b\"'\n";
        assert_eq!(edited, expected);
        assert_eq!(loaded(&edited), values);
    }

    #[test]
    fn whatever_is_set_survives_being_written() {
        let mut values = Values::default();
        for (name, value) in [
            ("maxmemory", "18446744073709551615"),
            ("save", "1 2"),
            ("dir", "a\\b\n"),
        ] {
            values
                .set(find(name.as_bytes()).unwrap(), value.as_bytes())
                .unwrap();
        }
        assert_eq!(loaded(&edit("", &values, &[]).unwrap()), values);
    }

    #[test]
    fn users_are_a_list_of_their_own() {
        let mut values = Values::default();
        let one = apply("user = 'alice on'\n", &mut values).unwrap();
        assert_eq!(one, ["alice on"]);
        assert!(apply("user = []\n", &mut values).unwrap().is_empty());
        let source = "user = ['alice on', 'bob off'] # both\nport = 1\n";
        let users = apply(source, &mut values).unwrap();
        assert_eq!(users, ["alice on", "bob off"]);
        assert_eq!(edit(source, &values, &users).unwrap(), source);
        let users = ["carol on >x".to_string()];
        let edited = edit(source, &values, &users).unwrap();
        assert_eq!(
            edited,
            "user = [\n    \"carol on >x\",\n] # both\nport = 1\n"
        );
        let added = edit("port = 1", &values, &users).unwrap();
        assert_eq!(apply(&added, &mut values).unwrap(), users);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cairn.toml");
        fs::write(&path, "timeout = 5").unwrap();
        let mut values = Values::default();
        load(&path, &mut values).unwrap();
        values.set(find(b"hz").unwrap(), b"50").unwrap();
        rewrite(&path, &values, &[]).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "timeout = 5\nhz = \"50\"\n"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(rewrite(&folder.path().join("absent"), &values, &[]).is_err());
    }
}
