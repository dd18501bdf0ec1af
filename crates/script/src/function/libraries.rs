//! The libraries of a server, as a value.
//!
//! It is cloned cheaply, changed, and put in the place of the old one: so those who run a function meanwhile
//! go on with what they began with. It knows no Lua. Whoever loads a library runs its code
//! ([`Engine::load`](crate::Engine::load)) and adds what came of it; engines of other threads run the code
//! again when they are first asked for one of its functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_resp::{Value as Reply, glob};

use super::load::Declared;

/// Code that was run, and what it registered.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    pub name: Vec<u8>,
    /// All of it, with the line `#!lua name=...`.
    pub code: Vec<u8>,
    pub functions: Vec<Declared>,
    /// Names the code in the caches of engines.
    pub(crate) sha: String,
}

#[derive(Clone, Default, Debug)]
pub struct Libraries {
    libraries: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By name in lower case: FCALL does not mind the case.
    functions: BTreeMap<Vec<u8>, (Arc<Library>, usize)>,
}

/// FUNCTION RESTORE's policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Append,
    Replace,
    Flush,
}

impl Libraries {
    pub fn new() -> Libraries {
        Libraries::default()
    }

    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.libraries.values()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.libraries.get(name)
    }

    /// A function and the library that it is of.
    pub fn function(&self, name: &[u8]) -> Option<(&Arc<Library>, &Declared)> {
        let (library, place) = self.functions.get(&name.to_ascii_lowercase())?;
        Some((library, library.functions.get(*place)?))
    }

    /// Adds a library; one of its name must not be there, unless it may be replaced. Errors are the text
    /// after `ERR `, and change nothing.
    pub fn add(&mut self, library: Arc<Library>, replace: bool) -> Result<(), Vec<u8>> {
        if !replace {
            self.check_new(&library.name)?;
        }
        self.join(vec![library], replace)
    }

    /// What FUNCTION LOAD says of a library that is there already, before it runs any code.
    pub fn check_new(&self, name: &[u8]) -> Result<(), Vec<u8>> {
        if self.libraries.contains_key(name) {
            return Err([b"Library '", name, b"' already exists"].concat());
        }
        Ok(())
    }

    /// Adds all libraries of a payload, or none.
    pub fn restore(&mut self, restored: Vec<Arc<Library>>, policy: Policy) -> Result<(), Vec<u8>> {
        let mut payload = Libraries::new();
        for library in restored {
            payload.add(library, false)?;
        }
        let restored: Vec<_> = payload.libraries.values().cloned().collect();
        match policy {
            Policy::Flush => *self = payload,
            Policy::Replace => self.join(restored, true)?,
            Policy::Append => {
                for library in &restored {
                    if self.libraries.contains_key(&library.name) {
                        return Err([b"Library ", &library.name[..], b" already exists"].concat());
                    }
                }
                self.join(restored, false)?;
            }
        }
        Ok(())
    }

    fn join(&mut self, added: Vec<Arc<Library>>, replace: bool) -> Result<(), Vec<u8>> {
        let mut joined = self.clone();
        for library in &added {
            if replace {
                joined.delete(&library.name);
            }
        }
        for library in added {
            for (place, function) in library.functions.iter().enumerate() {
                let key = function.name.to_ascii_lowercase();
                if joined.functions.contains_key(&key) {
                    let text = [b"Function ", &function.name[..], b" already exists"];
                    return Err(text.concat());
                }
                joined.functions.insert(key, (library.clone(), place));
            }
            joined.libraries.insert(library.name.clone(), library);
        }
        *self = joined;
        Ok(())
    }

    /// Whether there was one to delete.
    pub fn delete(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.libraries.remove(name) else {
            return false;
        };
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        true
    }

    /// FUNCTION LIST.
    pub fn list(&self, pattern: Option<&[u8]>, with_code: bool) -> Reply {
        let listed = self.iter().filter(|library| {
            pattern.is_none_or(|pattern| glob::matches(pattern, &library.name, true))
        });
        Reply::Array(listed.map(|library| library.describe(with_code)).collect())
    }

    /// The part of FUNCTION STATS that tells of engines.
    pub fn engines(&self) -> Reply {
        let counts = vec![
            (bulk("libraries_count"), count(self.libraries.len())),
            (bulk("functions_count"), count(self.functions.len())),
        ];
        Reply::Map(vec![(bulk("LUA"), Reply::Map(counts))])
    }
}

impl Library {
    fn describe(&self, with_code: bool) -> Reply {
        let functions = self.functions.iter().map(describe_function);
        let mut fields = vec![
            (bulk("library_name"), Reply::Bulk(self.name.clone())),
            (bulk("engine"), bulk("LUA")),
            (bulk("functions"), Reply::Array(functions.collect())),
        ];
        if with_code {
            fields.push((bulk("library_code"), Reply::Bulk(self.code.clone())));
        }
        Reply::Map(fields)
    }
}

fn describe_function(function: &Declared) -> Reply {
    let description = match &function.description {
        Some(text) => Reply::Bulk(text.clone()),
        None => Reply::Null,
    };
    let flags = function.flags.names();
    let flags = flags.map(|name| Reply::Simple(name.as_bytes().to_vec()));
    Reply::Map(vec![
        (bulk("name"), Reply::Bulk(function.name.clone())),
        (bulk("description"), description),
        (bulk("flags"), Reply::Set(flags.collect())),
    ])
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn count(count: usize) -> Reply {
    Reply::Int(count as i64)
}
