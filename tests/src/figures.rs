//! What a server, and the system, tell of it in numbers.

use std::fs;

use crate::client::Client;

/// A field of INFO.
pub fn info(client: &mut Client, section: &str, field: &str) -> u64 {
    let report = client.command(&["INFO", section]);
    let report = String::from_utf8_lossy(report.as_bytes().unwrap_or_default()).into_owned();
    number_after(&report, &format!("{field}:"))
}

/// Bytes of memory that a process takes now.
pub fn resident(pid: u32) -> u64 {
    of_process(pid, "status", "VmRSS:") * 1024
}

/// The most that it took since it began, or since [`forget_most_resident`].
pub fn most_resident(pid: u32) -> u64 {
    of_process(pid, "status", "VmHWM:") * 1024
}

pub fn forget_most_resident(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a file of /proc");
}

/// Bytes that it has written to files and sockets.
pub fn written(pid: u32) -> u64 {
    of_process(pid, "io", "wchar:")
}

/// Bytes that it has caused to be written to the disk.
pub fn written_to_disk(pid: u32) -> u64 {
    of_process(pid, "io", "\nwrite_bytes:")
}

fn of_process(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process");
    number_after(&text, name)
}

fn number_after(text: &str, name: &str) -> u64 {
    let (_, rest) = text.split_once(name).expect("a known name");
    let digits = rest
        .trim_start()
        .split(|c: char| !c.is_ascii_digit())
        .next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

/// Whether the elements of a collection are counted, block by block.
pub fn is_counted(client: &mut Client, name: &str) -> bool {
    let rows = client.line(&format!("DEBUG ROWS {name} LIMIT 1"));
    let lines = rows.items().unwrap_or_default().iter();
    let mut lines = lines.map(|line| String::from_utf8_lossy(line.as_bytes().unwrap_or_default()));
    lines.any(|line| line.contains("bit 5: counted"))
}
