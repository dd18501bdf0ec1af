//! The sheet that the rows are printed on.
//!
//! ```text
//!   label       what the label stands for
//!
//!   family      how the rows of this section are made up
//!     standing  cells of a row, in columns
//! ```

use super::text;

/// Width of the left column, in which families and standings are named.
const LABEL: usize = 12;
/// The most of a key, a sub-key, or a part of a row's bytes that is shown.
pub const SHORT: usize = 64;
/// The most of a value that is shown.
pub const LONG: usize = 96;

/// What a row is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Live,
    /// Of a key that is past its time, and waits to be deleted.
    Expired,
    /// Nothing refers to it: it waits to be reclaimed.
    Dead,
    /// Written ahead of the metadata that will refer to it.
    Staged,
    /// It cannot be told, because the metadata is damaged.
    Unknown,
    /// Its bytes are none that the program writes.
    Damaged,
}

impl Standing {
    fn label(self) -> &'static str {
        match self {
            Standing::Live => "live",
            Standing::Expired => "expired",
            Standing::Dead => "dead",
            Standing::Staged => "staged",
            Standing::Unknown => "unknown",
            Standing::Damaged => "damaged",
        }
    }
}

/// One row, described.
pub struct Entry {
    pub standing: Standing,
    pub cells: Vec<String>,
    pub raw: Option<Raw>,
}

/// The bytes of a row in hex, cut into their fields.
pub struct Raw {
    pub key: String,
    pub value: String,
}

#[derive(Default)]
pub struct Page {
    lines: Vec<String>,
    /// How many rows of each standing, in the order in which they were met.
    tally: Vec<(Standing, usize)>,
    is_cut: bool,
}

impl Page {
    /// A line with a label, or with none.
    pub fn line(&mut self, label: &str, text: &str) {
        let line = format!("{label:<LABEL$}{text}");
        self.lines.push(line.trim_end().to_owned());
    }

    pub fn gap(&mut self) {
        self.lines.push(String::new());
    }

    /// The rows of a section, in columns.
    pub fn entries(&mut self, entries: &[Entry]) {
        let widths = widths(entries);
        for entry in entries {
            self.count(entry.standing);
            let label = format!("  {}", entry.standing.label());
            self.line(&label, &aligned(&entry.cells, &widths));
            self.raw(entry.raw.as_ref());
        }
    }

    /// The facts in one row's value: name, value, meaning.
    pub fn facts(&mut self, standing: Standing, facts: &[[String; 3]], raw: Option<Raw>) {
        self.count(standing);
        let entries: Vec<Entry> = facts
            .iter()
            .map(|fact| Entry {
                standing,
                cells: fact.to_vec(),
                raw: None,
            })
            .collect();
        let widths = widths(&entries);
        let mut label = format!("  {}", standing.label());
        for entry in entries {
            self.line(&std::mem::take(&mut label), &aligned(&entry.cells, &widths));
        }
        self.raw(raw.as_ref());
    }

    fn raw(&mut self, raw: Option<&Raw>) {
        if let Some(raw) = raw {
            self.line("", &format!("key    {}", raw.key));
            self.line("", &format!("value  {}", raw.value));
        }
    }

    pub fn more(&mut self, limit: usize) {
        self.is_cut = true;
        self.line("  ...", &format!("more rows, beyond the limit of {limit}"));
    }

    fn count(&mut self, standing: Standing) {
        match self.tally.iter_mut().find(|(seen, _)| *seen == standing) {
            Some((_, count)) => *count += 1,
            None => self.tally.push((standing, 1)),
        }
    }

    pub fn has_rows(&self) -> bool {
        !self.tally.is_empty()
    }

    /// Puts another page below this one.
    pub fn append(&mut self, below: Page) {
        self.lines.extend(below.lines);
    }

    /// The last line: how many rows there are.
    pub fn print_total(&mut self) {
        let counts: Vec<String> = self
            .tally
            .iter()
            .map(|(standing, count)| format!("{count} {}", standing.label()))
            .collect();
        let more = if self.is_cut { ", and more" } else { "" };
        self.gap();
        self.line("rows", &format!("{}{more}", counts.join(", ")));
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

fn widths(entries: &[Entry]) -> Vec<usize> {
    let mut widths = Vec::new();
    for entry in entries {
        for (column, cell) in entry.cells.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    widths
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, &width)| {
        let gap = width - cell.chars().count();
        format!("{cell}{}", " ".repeat(gap))
    });
    padded.collect::<Vec<_>>().join("  ")
}

/// Bytes in hex, cut after each of the lengths; the rest is the last field.
pub fn fields(bytes: &[u8], lengths: &[usize]) -> String {
    if bytes.is_empty() {
        return "(empty)".into();
    }
    let mut rest = bytes;
    let mut fields = Vec::new();
    for &length in lengths {
        let (field, after) = rest.split_at(length.min(rest.len()));
        fields.push(text::hex(field, SHORT));
        rest = after;
    }
    fields.push(text::hex(rest, LONG));
    fields.retain(|field| !field.is_empty());
    fields.join(" ")
}
