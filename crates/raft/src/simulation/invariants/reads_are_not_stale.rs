//! What was acknowledged before a read began shows in it.

#[derive(Default)]
pub(crate) struct Reads(u64);

impl Reads {
    /// The highest index that was acknowledged before the read, and the one that it saw.
    pub(crate) fn seen(&mut self, before: Option<u64>, seen: Option<u64>) {
        assert!(
            seen >= before,
            "a read saw {seen:?}, after {before:?} was acknowledged"
        );
        self.0 += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.0
    }
}
