//! What was measured, line by line as it comes, and as a page.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

pub struct Report {
    page: String,
    missed: usize,
}

impl Report {
    pub fn begin() -> Report {
        let mut report = Report {
            page: String::new(),
            missed: 0,
        };
        report.text("# A cluster on one machine\n");
        report.text(
            "Made by `make bench-cluster`: three nodes on loopback, which share processors, memory and disk with each \
             other, with the clients and with whatever they are compared to.\n",
        );
        report.text("|  |  |\n| --- | --- |");
        report.row(&["date", &said("date", &["-u", "+%F %H:%M UTC"])]);
        report.row(&["processor", &processor()]);
        report.row(&["kernel", &said("uname", &["-sr"])]);
        let cairn = cairn_tests::server::cairn_binary();
        report.row(&["cairn", &said(&cairn.to_string_lossy(), &["--version"])]);
        report.row(&["commit", &said("git", &["rev-parse", "--short", "HEAD"])]);
        let etcd = said("etcd", &["--version"]);
        report.row(&["etcd", etcd.lines().next().unwrap_or("none")]);
        report
    }

    pub fn section(&mut self, title: &str, explanation: &str) {
        self.text(&format!("\n## {title}\n\n{explanation}\n"));
    }

    pub fn head(&mut self, columns: &[&str]) {
        self.row(columns);
        let rules: Vec<&str> = columns.iter().map(|_| "---").collect();
        self.row(&rules);
    }

    pub fn row(&mut self, cells: &[&str]) {
        self.text(&format!("| {} |", cells.join(" | ")));
    }

    /// Something that has to hold.
    pub fn bar(&mut self, what: &str, holds: bool) {
        self.missed += usize::from(!holds);
        let verdict = if holds { "Met" } else { "**Missed**" };
        self.text(&format!("\n{verdict}: {what}."));
    }

    pub fn text(&mut self, line: &str) {
        println!("{line}");
        let _ = writeln!(self.page, "{line}");
    }

    pub fn page(&self) -> &str {
        &self.page
    }

    pub fn is_met(&self) -> bool {
        self.missed == 0
    }
}

pub fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied()
}

pub fn seconds(duration: Option<Duration>) -> String {
    duration.map_or("never".to_string(), |duration| {
        format!("{:.2} s", duration.as_secs_f64())
    })
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    said.unwrap_or_else(|_| "unknown".to_string())
}

fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = told.lines().filter(|line| line.starts_with("model name"));
    let names: Vec<&str> = names.filter_map(|line| line.split(": ").nth(1)).collect();
    format!(
        "{}, {} cores",
        names.first().unwrap_or(&"unknown"),
        names.len()
    )
}
