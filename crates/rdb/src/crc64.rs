//! The checksum of Redis' dumps: CRC-64 with the polynomial of David T. Jones, bits reflected.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// `TABLES[n][byte]` is what a byte becomes when `n` more have passed: so eight are taken at once.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut passed = 1;
    while passed < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[passed - 1][byte];
            tables[passed][byte] = tables[0][(crc & 0xff) as usize] ^ (crc >> 8);
            byte += 1;
        }
        passed += 1;
    }
    tables
}

pub fn crc64(bytes: &[u8]) -> u64 {
    continued(0, bytes)
}

/// The checksum of all that came so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = continued(self.0, bytes);
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

fn continued(mut crc: u64, bytes: &[u8]) -> u64 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let mixed = (crc ^ u64::from_le_bytes(*eight)).to_le_bytes();
        crc = 0;
        for (place, byte) in mixed.into_iter().enumerate() {
            crc ^= TABLES[7 - place][usize::from(byte)];
        }
    }
    rest.iter().fold(crc, |crc, byte| {
        TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let bytes: Vec<u8> = (0..100u32).map(|n| (n * 37 % 251) as u8).collect();
        for at in 0..bytes.len() {
            let mut sum = Sum::default();
            sum.add(&bytes[..at]);
            sum.add(&bytes[at..]);
            assert_eq!(sum.value(), crc64(&bytes));
        }
    }

    #[test]
    fn eight_at_once_are_as_one_by_one() {
        let bytes: Vec<u8> = (0..100u32).map(|n| (n * 37 % 251) as u8).collect();
        for len in 0..bytes.len() {
            let one_by_one = bytes[..len].iter().fold(0, |crc, byte| {
                TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
            });
            assert_eq!(crc64(&bytes[..len]), one_by_one);
        }
    }
}
