//! Which slot a key is in, by the rule of Redis Cluster. It is written anew here, bit by bit, since tests share no code
//! with what they test.

pub fn slot(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % 16384
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[open..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[open..open + length])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_as_redis_tells_them() {
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"123456789"), 12739);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b"x{}{foo}"), crc16(b"x{}{foo}") % 16384);
    }
}
