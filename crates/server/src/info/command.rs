//! What is counted by command, and by error.

use cairn_store::Result;

use super::Report;
use crate::command::{by_number, count};
use crate::server::Server;

pub fn stats(server: &Server, report: &mut Report) -> Result<()> {
    for command in (0..count()).filter_map(by_number) {
        let stats = server.stats.of(command);
        if stats.calls + stats.rejected + stats.failed == 0 {
            continue;
        }
        let per_call = stats.microseconds as f64 / stats.calls.max(1) as f64;
        report.field(
            &format!("cmdstat_{}", command.full_name),
            format!(
                "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                stats.calls, stats.microseconds, stats.rejected, stats.failed
            ),
        );
    }
    Ok(())
}

pub fn errors(server: &Server, report: &mut Report) -> Result<()> {
    for (code, count) in server.stats.errors() {
        let code = String::from_utf8_lossy(&code).into_owned();
        report.field(&format!("errorstat_{code}"), format!("count={count}"));
    }
    Ok(())
}

pub fn latencies(server: &Server, report: &mut Report) -> Result<()> {
    let percentiles = server.config.text("latency-tracking-info-percentiles");
    let percentiles: Vec<&str> = percentiles.split_ascii_whitespace().collect();
    for command in (0..count()).filter_map(by_number) {
        let Some(latency) = server.stats.latency_of(command) else {
            continue;
        };
        let figures: Vec<String> = percentiles
            .iter()
            .map(|name| {
                let nanoseconds = latency.percentile(name.parse().unwrap_or(100.0));
                format!("p{name}={:.3}", nanoseconds as f64 / 1000.0)
            })
            .collect();
        report.field(
            &format!("latency_percentiles_usec_{}", command.full_name),
            figures.join(","),
        );
    }
    Ok(())
}
