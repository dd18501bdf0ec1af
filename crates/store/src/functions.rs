//! Libraries of functions, kept by their names. What their code says is not known here.

use cairn_encoding::row;
use cairn_encoding::system::{SystemKey, SystemKind};
use cairn_engine::{Engine, Family, LOCAL_REGION};

use crate::error::Result;
use crate::txn::WriteTxn;

fn row_of(name: &[u8]) -> Vec<u8> {
    SystemKey::Library {
        region: LOCAL_REGION,
        name,
    }
    .encode()
}

/// Keeps a library's code, in the place of what it had before.
pub fn put(txn: &mut WriteTxn, name: &[u8], code: &[u8]) {
    txn.put(Family::Meta, &row_of(name), code);
}

pub fn delete(txn: &mut WriteTxn, name: &[u8]) {
    txn.delete(Family::Meta, &row_of(name));
}

/// The codes of all libraries.
pub fn all(engine: &Engine) -> Result<Vec<Vec<u8>>> {
    let prefix = SystemKind::Library.region_prefix(LOCAL_REGION);
    let end = row::prefix_end(&prefix).unwrap_or_default();
    let mut rows = engine.background_rows(Family::Meta, &prefix, &end);
    let mut codes = Vec::new();
    while let Some((_, code)) = rows.next()? {
        codes.push(code.to_vec());
    }
    Ok(codes)
}
