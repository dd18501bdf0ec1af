//! Libraries of functions, kept by their names, in the region of what is about no key. What their code says is not known
//! here.

use cairn_encoding::row;
use cairn_encoding::system::{SystemKey, SystemKind};
use cairn_engine::Family;

use crate::error::Result;
use crate::store::Store;
use crate::txn::WriteTxn;

fn row_of(txn: &WriteTxn, name: &[u8]) -> Vec<u8> {
    let region = txn.region().id();
    SystemKey::Library { region, name }.encode()
}

/// Keeps a library's code, in the place of what it had before.
pub fn put(txn: &mut WriteTxn, name: &[u8], code: &[u8]) {
    let row = row_of(txn, name);
    txn.put(Family::Meta, &row, code);
}

pub fn delete(txn: &mut WriteTxn, name: &[u8]) {
    let row = row_of(txn, name);
    txn.delete(Family::Meta, &row);
}

/// The codes of all libraries.
pub fn all(store: &Store) -> Result<Vec<Vec<u8>>> {
    let prefix = SystemKind::Library.region_prefix(store.home().id());
    let end = row::prefix_end(&prefix).unwrap_or_default();
    let mut rows = store.engine().background_rows(Family::Meta, &prefix, &end);
    let mut codes = Vec::new();
    while let Some((_, code)) = rows.next()? {
        codes.push(code.to_vec());
    }
    Ok(codes)
}
