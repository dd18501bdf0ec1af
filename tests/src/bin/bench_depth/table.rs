//! The bars, and whether they are met.

use std::io::{self, Write};

use crate::measure::Costs;
use crate::scale::Scale;

pub struct Table {
    slack: f64,
    bars: usize,
    missed: Vec<String>,
    /// How many were there, and were missed, when the group began.
    before: (usize, usize),
}

impl Table {
    pub fn begin(scale: &Scale) -> Table {
        println!(
            "scale {}: {} elements, {} keys, strings of {} MB",
            scale.name,
            scale.elements,
            scale.many,
            scale.string >> 20
        );
        if scale.slack != 1.0 {
            println!(
                "bars about time are {} times as high as at full scale",
                scale.slack
            );
        }
        println!(
            "\n     {:<56} {:>12} {:>12} {:>9} {:>9}",
            "", "base", "deep", "ratio", "at most"
        );
        Table {
            slack: scale.slack,
            bars: 0,
            missed: Vec::new(),
            before: (0, 0),
        }
    }

    pub fn group(&mut self, name: &str) {
        println!("{name}");
        self.before = (self.bars, self.missed.len());
    }

    /// Whether all bars of the group are met.
    pub fn group_is_met(&self) -> bool {
        self.missed.len() == self.before.1
    }

    /// Forgets the bars of the group, which is measured again.
    pub fn forget_group(&mut self) {
        println!("     once more");
        let (bars, missed) = self.before;
        self.bars = bars;
        self.missed.truncate(missed);
    }

    /// What a command costs where there is much, beside what it costs where there is little.
    pub fn ratio(&mut self, what: &str, costs: Costs, most: f64) {
        let Costs { base, deep } = costs;
        let most = most * self.slack;
        let shown = |micros: f64| format!("{micros:.1} µs");
        self.bar(what, &shown(base), &shown(deep), deep / base, "x", most);
    }

    /// A ratio of sizes, which no machine disturbs.
    pub fn ratio_of_bytes(&mut self, what: &str, base: u64, deep: u64, most: f64) {
        let shown = |bytes: u64| format!("{:.1} MB", megabytes(bytes));
        let ratio = deep as f64 / base.max(1) as f64;
        self.bar(what, &shown(base), &shown(deep), ratio, "x", most);
    }

    /// Something that has a bar of its own.
    pub fn at_most(&mut self, what: &str, measured: f64, unit: &str, most: f64) {
        self.bar(what, "", "", measured, unit, most);
    }

    /// Something that is worth knowing and has no bar.
    pub fn remark(&mut self, what: &str) {
        println!("-    {what}");
    }

    fn bar(&mut self, what: &str, base: &str, deep: &str, measured: f64, unit: &str, most: f64) {
        let is_met = measured <= most;
        let verdict = if is_met { "ok  " } else { "FAIL" };
        println!("{verdict} {what:<56} {base:>12} {deep:>12} {measured:>7.2} {unit:<2}{most:>7.2}");
        // Whoever watches a pipe wants to see it come.
        let _ = io::stdout().flush();
        self.bars += 1;
        if !is_met {
            self.missed.push(what.to_owned());
        }
    }

    /// Whether all bars are met.
    pub fn end(self) -> bool {
        println!("\n{} bars, {} missed", self.bars, self.missed.len());
        for what in &self.missed {
            println!("  {what}");
        }
        self.missed.is_empty()
    }
}

pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
