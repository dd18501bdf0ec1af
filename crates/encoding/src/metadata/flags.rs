//! The first byte of a metadata value; its bits are drawn in the parent module.

use super::Type;
use crate::DecodeError;

const MARKER: u8 = 0b1000_0000;
const EXPIRING: u8 = 0b0100_0000;
const COUNTED: u8 = 0b0010_0000;
const CHUNKED: u8 = 0b0001_0000;
const TYPE: u8 = 0b0000_1111;

pub(super) struct Flags {
    pub kind: Type,
    pub chunked: bool,
    pub counted: bool,
    pub expiring: bool,
}

impl Flags {
    pub fn encode(&self) -> u8 {
        let chunked = if self.chunked { CHUNKED } else { 0 };
        let counted = if self.counted { COUNTED } else { 0 };
        let expiring = if self.expiring { EXPIRING } else { 0 };
        MARKER | expiring | counted | chunked | self.kind as u8
    }

    #[inline]
    pub fn decode(flags: u8) -> Result<Flags, DecodeError> {
        if flags & MARKER == 0 {
            return Err(DecodeError::UnmarkedFlags { flags });
        }
        let kind = type_of_code(flags & TYPE)?;
        let chunked = flags & CHUNKED != 0;
        if chunked && kind != Type::String {
            return Err(DecodeError::ChunkedNonString { kind: kind.name() });
        }
        let counted = flags & COUNTED != 0;
        if counted && !matches!(kind, Type::Hash | Type::Set | Type::ZSet) {
            return Err(DecodeError::CountedOther { kind: kind.name() });
        }
        let expiring = flags & EXPIRING != 0;
        if expiring && kind != Type::Hash {
            return Err(DecodeError::ExpiringOther { kind: kind.name() });
        }
        Ok(Flags {
            kind,
            chunked,
            counted,
            expiring,
        })
    }
}

fn type_of_code(code: u8) -> Result<Type, DecodeError> {
    Ok(match code {
        1 => Type::String,
        2 => Type::Hash,
        3 => Type::List,
        4 => Type::Set,
        5 => Type::ZSet,
        6 => Type::Stream,
        _ => return Err(DecodeError::UnknownType { code }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_256_bytes_is_an_error_or_encodes_back_to_itself() {
        let valid: Vec<u8> = (0..=u8::MAX)
            .filter(|&byte| {
                Flags::decode(byte)
                    .map(|flags| assert_eq!(flags.encode(), byte))
                    .is_ok()
            })
            .collect();
        let counted = [0xa2, 0xa4, 0xa5];
        let others = [0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x91];
        let expiring = [0xc2, 0xe2];
        assert_eq!(valid, [&others[..], &counted, &expiring].concat());
    }

    #[test]
    fn each_fault_has_its_name() {
        let fault = |byte| Flags::decode(byte).err().map(|error| error.to_string());
        let expect = |message: &str| Some(message.to_string());
        assert_eq!(
            fault(0x01),
            expect("metadata value: bit 7 of flags 0x01 is not set")
        );
        assert_eq!(
            fault(0xa1),
            expect("metadata value: flags say that the elements of a string are counted")
        );
        assert_eq!(
            fault(0xc1),
            expect("metadata value: flags say that a string has fields that expire")
        );
        assert_eq!(
            fault(0x80),
            expect("metadata value: unknown type 0 in flags")
        );
        assert_eq!(
            fault(0x8f),
            expect("metadata value: unknown type 15 in flags")
        );
        assert_eq!(
            fault(0x92),
            expect("metadata value: flags mark a hash as a chunked string")
        );
    }
}
