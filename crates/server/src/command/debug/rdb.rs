//! RDB files, written and read where the database is. For tests: others have SYNC and its like.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use cairn_rdb::file::{Progress, Version};
use cairn_resp::Reply;
use cairn_store::{Error, Result};

use crate::command::args::{Args, is};
use crate::rdb_file::Preparation;
use crate::rdb_load::Loading;
use crate::server::Server;

const PIECE: usize = 256 * 1024;

/// A file that lies beside those of the database and cannot be one of them.
fn path(server: &Server, name: &[u8]) -> Result<PathBuf> {
    let name = str::from_utf8(name).unwrap_or_default();
    let is_plain = name.ends_with(".rdb") && !name.contains(['/', '\\', '\0']);
    match is_plain {
        true => Ok(server.settings.dir.join(name)),
        false => Err(Error::fixed(
            "ERR the name of the file must end with .rdb, and name no directory",
        )),
    }
}

fn failed(error: &io::Error) -> Error {
    Error::reply(format!("ERR {error}"))
}

/// Redis 7.0 reads version 10, and 7.4 version 12, in which fields keep their times.
fn version(args: &Args) -> Result<Version> {
    match args.rest(3) {
        [] => Ok(Version::Redis70),
        [word, b"10"] if is(word, "version") => Ok(Version::Redis70),
        [word, b"12"] if is(word, "version") => Ok(Version::Redis74),
        _ => Err(Error::SYNTAX),
    }
}

pub fn save(server: &Server, args: &Args) -> Result<Reply> {
    let path = path(server, args[2])?;
    let version = version(args)?;
    let preparation = Preparation::new(server)?.for_version(version);
    let mut snapshot = preparation.open(server)?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| failed(&error))?;
    let mut piece = Vec::new();
    loop {
        let goes_on = snapshot.write_next(&mut piece)?;
        file.write_all(&piece).map_err(|error| failed(&error))?;
        piece.clear();
        if !goes_on {
            return Ok(Reply::Ok);
        }
    }
}

pub fn load(server: &Server, args: &Args) -> Result<Reply> {
    let loaded = load_file(server, args);
    // Followers were not told what is in it.
    server.replication.cut();
    loaded
}

fn load_file(server: &Server, args: &Args) -> Result<Reply> {
    let mut file = File::open(path(server, args[2])?).map_err(|error| failed(&error))?;
    let mut loading = Loading::new(server)?;
    let mut piece = vec![0; PIECE];
    loop {
        let length = file.read(&mut piece).map_err(|error| failed(&error))?;
        let progress = loading.push(server, &piece[..length]);
        let failed = match progress {
            Ok(Progress::Done) => return Ok(Reply::Int(loading.keys() as i64)),
            Ok(Progress::Short) if length > 0 => continue,
            Ok(Progress::Short) => loading.cut(),
            Err(failure) => failure,
        };
        return Err(Error::reply(format!("ERR {failed}")));
    }
}
