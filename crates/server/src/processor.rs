//! Whether this processor has what the program was compiled for (`.cargo/config.toml`): without, it would be ended by the system in
//! the midst of its work, and nobody would know why.

/// What is missing, in words for whoever has started the program.
pub fn lacks() -> Option<String> {
    let missing: Vec<&str> = missing_among(features()).collect();
    (!missing.is_empty()).then(|| {
        let names = missing.join(", ");
        format!(
            "this processor, or the model that the virtual machine shows, has no {names}; \
             build without the flags of .cargo/config.toml"
        )
    })
}

/// As x86 numbers its features; each with whether the compiler was told to use it.
const WANTED: [(u32, &str, bool); 5] = [
    (1, "PCLMULQDQ", cfg!(target_feature = "pclmulqdq")),
    (9, "SSSE3", cfg!(target_feature = "ssse3")),
    (19, "SSE4.1", cfg!(target_feature = "sse4.1")),
    (20, "SSE4.2", cfg!(target_feature = "sse4.2")),
    (23, "POPCNT", cfg!(target_feature = "popcnt")),
];

fn missing_among(features: u32) -> impl Iterator<Item = &'static str> {
    let missing = WANTED
        .into_iter()
        .filter(move |(bit, _, is_wanted)| *is_wanted && features >> bit & 1 == 0);
    missing.map(|(_, name, _)| name)
}

/// Asked of the processor itself: the compiler takes for granted what it was told.
#[cfg(target_arch = "x86_64")]
fn features() -> u32 {
    std::arch::x86_64::__cpuid(1).ecx
}

/// Nothing of this is wanted elsewhere.
#[cfg(not(target_arch = "x86_64"))]
fn features() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_and_not_there_is_named() {
        let wanted: Vec<&str> = WANTED.iter().filter(|it| it.2).map(|it| it.1).collect();
        assert_eq!(missing_among(0).collect::<Vec<_>>(), wanted);
        assert_eq!(missing_among(u32::MAX).next(), None);
        for (bit, name, _) in WANTED.iter().filter(|it| it.2) {
            let others = !(1 << bit);
            assert_eq!(missing_among(others).collect::<Vec<_>>(), [*name]);
        }
        assert_eq!(lacks(), None, "the tests run here");
    }
}
