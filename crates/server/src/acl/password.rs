//! Passwords, of which only a hash is kept.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

const LEN: usize = 32;

/// The SHA-256 of a password.
#[derive(Clone, Copy, Debug)]
pub struct Hash([u8; LEN]);

impl Hash {
    pub fn of(password: &[u8]) -> Hash {
        let mut hash = [0; LEN];
        hash.copy_from_slice(digest(&SHA256, password).as_ref());
        Hash(hash)
    }

    /// Reads it as it is shown: in lower case.
    pub fn parse(text: &[u8]) -> Option<Hash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != 2 * LEN {
            return None;
        }
        let mut hash = [0; LEN];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Hash(hash))
    }

    pub fn show(&self) -> String {
        hex(&self.0)
    }
}

/// Takes a time that does not tell how much of them is the same.
impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
    }
}

impl Eq for Hash {}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many hexadecimal digits that nobody can guess; none if the system has no randomness to give.
pub fn generate(digits: usize) -> Option<String> {
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let mut text = hex(&bytes);
    text.truncate(digits);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_shown() {
        let shown = "34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6";
        let hash = Hash::of(b"passwd4");
        assert_eq!(hash.show(), shown);
        assert_eq!(Hash::parse(shown.as_bytes()), Some(hash));
        assert_ne!(Hash::of(b"passwd5"), hash);
        for wrong in [
            &shown[1..],
            &shown.replace('f', "F"),
            &shown.replace('e', "g"),
            "",
        ] {
            assert_eq!(Hash::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn passwords_have_the_length_asked_for() {
        for digits in [1, 2, 7, 64] {
            assert_eq!(generate(digits).map(|text| text.len()), Some(digits));
        }
        assert_ne!(generate(64), generate(64));
    }
}
