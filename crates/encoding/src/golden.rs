//! Golden bytes: a layout's test spells out in hex what is on disk, with a space between fields, so that
//! no change of an encoder and its decoder together can pass unnoticed.

#[track_caller]
pub fn assert_bytes(actual: &[u8], expected: &str) {
    let hex: String = actual.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace(' ', ""));
}
