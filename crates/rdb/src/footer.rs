//! The end of a payload: the version of the format, and the checksum of everything before it.

use crate::crc64::crc64;

/// That of Redis 7.0.
const VERSION: u16 = 10;
/// That of Redis 7.4, for what there was not before.
const LATER_VERSION: u16 = 12;
const LEN: usize = 10;

/// What the payload holds, if its footer is right.
pub fn opened(payload: &[u8]) -> Option<&[u8]> {
    opened_up_to(VERSION, payload)
}

/// The same for what there was not in Redis 7.0.
pub fn opened_later(payload: &[u8]) -> Option<&[u8]> {
    opened_up_to(LATER_VERSION, payload)
}

fn opened_up_to(most: u16, payload: &[u8]) -> Option<&[u8]> {
    let (summed, checksum) = payload.split_at(payload.len().checked_sub(LEN)? + 2);
    let (content, version) = summed.split_last_chunk::<2>()?;
    let is_right = u16::from_le_bytes(*version) <= most && crc64(summed).to_le_bytes() == checksum;
    is_right.then_some(content)
}

/// Appends the footer.
pub fn seal(content: &mut Vec<u8>) {
    seal_as(VERSION, content);
}

/// The same for what there was not in Redis 7.0, which then refuses it by its footer.
pub fn seal_later(content: &mut Vec<u8>) {
    seal_as(LATER_VERSION, content);
}

fn seal_as(version: u16, content: &mut Vec<u8>) {
    content.extend_from_slice(&version.to_le_bytes());
    let checksum = crc64(content);
    content.extend_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        let mut payload = b"\x00\x03abc".to_vec();
        seal(&mut payload);
        assert_eq!(opened(&payload), Some(&b"\x00\x03abc"[..]));
        for place in 0..payload.len() {
            assert_eq!(opened(&payload[..place]), None);
            let mut changed = payload.clone();
            changed[place] ^= 0x10;
            assert_eq!(opened(&changed), None);
        }
    }

    #[test]
    fn what_is_later_is_of_a_later_version() {
        let mut payload = b"\x18abc".to_vec();
        seal_later(&mut payload);
        assert_eq!(payload[4..6], [12, 0]);
        assert_eq!(opened(&payload), None);
        assert_eq!(opened_later(&payload), Some(&b"\x18abc"[..]));
        let mut latest = b"\x18abc".to_vec();
        seal_as(13, &mut latest);
        assert_eq!(opened_later(&latest), None);
    }

    #[test]
    fn later_versions_are_refused() {
        for (version, opens) in [(9u16, true), (10, true), (11, false), (0x0a00, false)] {
            let mut payload = b"\x00\x01a".to_vec();
            payload.extend_from_slice(&version.to_le_bytes());
            let checksum = crc64(&payload);
            payload.extend_from_slice(&checksum.to_le_bytes());
            assert_eq!(opened(&payload).is_some(), opens, "{version}");
        }
    }
}
