//! Where findings go: each to the caller at once, and into the summary as a number.

use cairn_engine::Family;

use super::fault::{Fault, Place, Violation};
use super::summary::Summary;

pub struct Log<'r> {
    report: &'r mut dyn FnMut(&Violation),
    pub summary: Summary,
}

impl<'r> Log<'r> {
    pub fn new(report: &'r mut dyn FnMut(&Violation)) -> Self {
        Log {
            report,
            summary: Summary::default(),
        }
    }

    pub fn fault(&mut self, place: &Place, fault: Fault) {
        self.summary.violations += 1;
        (self.report)(&Violation {
            place: place.clone(),
            fault,
        });
    }

    pub fn fault_in(&mut self, family: Family, fault: Fault) {
        self.fault(&Place::Family(family), fault);
    }
}
