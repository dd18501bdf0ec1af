//! FLUSHDB and SWAPDB inside transactions: seen at once by the transaction, by others after its commit.

use cairn_encoding::system::SystemKind;
use cairn_store::Family;
use cairn_store::databases::{flush, swap};

use crate::support::*;

fn in_database<T>(
    fixture: &Fixture,
    number: u32,
    command: impl FnOnce(&mut cairn_store::WriteTxn) -> T,
) -> T {
    fixture.write(|txn| {
        txn.begin(number);
        command(txn)
    })
}

fn keys_of(fixture: &Fixture, number: u32) -> Vec<String> {
    in_database(fixture, number, |txn| keys(txn))
}

fn sown() -> Fixture {
    let fixture = Fixture::new();
    in_database(&fixture, 0, |txn| set(txn, "zero", "0"));
    in_database(&fixture, 1, |txn| set(txn, "one", "1"));
    fixture
}

#[test]
fn databases_do_not_see_each_other() {
    let fixture = sown();
    assert_eq!(keys_of(&fixture, 0), ["zero"]);
    assert_eq!(keys_of(&fixture, 1), ["one"]);
    assert_eq!(keys_of(&fixture, 2), [""; 0]);
}

#[test]
fn a_flush_empties_one_database_for_its_transaction_first() {
    let fixture = sown();
    let mut txn = fixture.txn();
    flush(&mut txn, [0]);
    assert_eq!(keys(&txn), [""; 0]);
    assert_eq!(get(&txn, "zero"), None);
    set(&mut txn, "after", "flush");
    assert_eq!(keys(&txn), ["after"]);
    assert_eq!(keys_of(&fixture, 0), ["zero"]);
    fixture.commit(txn);
    assert_eq!(keys_of(&fixture, 0), ["after"]);
    assert_eq!(keys_of(&fixture, 1), ["one"]);
}

#[test]
fn what_a_transaction_wrote_before_its_flush_is_gone_too() {
    let fixture = Fixture::new();
    let mut txn = fixture.txn();
    set(&mut txn, "before", "flush");
    flush(&mut txn, [0]);
    flush(&mut txn, [0]);
    set(&mut txn, "after", "flush");
    fixture.commit(txn);
    assert_eq!(keys_of(&fixture, 0), ["after"]);
}

#[test]
fn a_swap_exchanges_two_databases_for_its_transaction_first() {
    let mut fixture = sown();
    let mut txn = fixture.txn();
    swap(&mut txn, 0, 1);
    assert_eq!(keys(&txn), ["one"]);
    set(&mut txn, "written after", "swap");
    txn.begin(1);
    assert_eq!(keys(&txn), ["zero"]);
    assert_eq!(keys_of(&fixture, 0), ["zero"]);
    fixture.commit(txn);
    for _ in 0..2 {
        assert_eq!(keys_of(&fixture, 0), ["one", "written after"]);
        assert_eq!(keys_of(&fixture, 1), ["zero"]);
        fixture.restart();
    }
}

#[test]
fn a_swap_of_one_with_itself_and_a_flush_of_the_swapped() {
    let fixture = sown();
    fixture.write(|txn| {
        swap(txn, 1, 1);
        swap(txn, 0, 1);
        flush(txn, [1]);
    });
    assert_eq!(keys_of(&fixture, 0), ["one"]);
    assert_eq!(keys_of(&fixture, 1), [""; 0]);
}

/// A script may flush and then be thrown away.
#[test]
fn a_flush_that_is_taken_back_has_not_happened() {
    let fixture = sown();
    let mut txn = fixture.txn();
    swap(&mut txn, 0, 2);
    txn.begin(2);
    flush(&mut txn, [2]);
    set(&mut txn, "lost", "value");
    txn.undo();
    assert_eq!(keys(&txn), ["zero"]);
    set(&mut txn, "kept", "value");
    fixture.commit(txn);
    assert_eq!(keys_of(&fixture, 2), ["kept", "zero"]);
    assert_eq!(keys_of(&fixture, 0), [""; 0]);

    let mut txn = fixture.txn();
    txn.begin(1);
    flush(&mut txn, [0, 1, 2]);
    txn.undo();
    fixture.commit(txn);
    assert_eq!(keys_of(&fixture, 1), ["one"]);
}

#[test]
fn a_flush_writes_a_few_rows_whatever_the_size() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        hset(txn, "hash", fields(5_000));
        for n in 0..1_000 {
            set(txn, &format!("key:{n}"), "value");
        }
    });
    let mut txn = fixture.txn();
    flush(&mut txn, 0..4);
    assert!(txn.pending().len() <= 3, "{} rows", txn.pending().len());
    fixture.commit(txn);
    // A database without keys need not be replaced.
    assert_eq!(fixture.count_of(SystemKind::DeadIndex), 1);
    assert_eq!(fixture.count_in(Family::Metadata), 1_001);
    assert_eq!(fixture.keys(), [""; 0]);
}

/// Which databases have keys is known by their indexes, which move.
#[test]
fn a_database_is_flushed_wherever_its_keys_came_from() {
    let mut fixture = sown();
    // More of them than are remembered beside the set of all.
    for _ in 0..20 {
        fixture.write(|txn| {
            set(txn, "again", "value");
            flush(txn, [0]);
            set(txn, "again", "value");
        });
        in_database(&fixture, 1, |txn| set(txn, "one", "1"));
    }
    fixture.write(|txn| swap(txn, 0, 3));
    fixture.write(|txn| swap(txn, 1, 2));
    fixture.write(|txn| flush(txn, [3]));
    fixture.restart();
    fixture.write(|txn| flush(txn, [2]));
    for number in 0..4 {
        assert_eq!(keys_of(&fixture, number), [""; 0]);
    }
}

#[test]
fn a_flushed_database_never_returns() {
    let mut fixture = sown();
    let index = |fixture: &Fixture| fixture.store().home().databases().index_of(0);
    let mut indexes = vec![index(&fixture)];
    for _ in 0..3 {
        fixture.write(|txn| flush(txn, [0]));
        fixture.restart();
        assert_eq!(fixture.keys(), [""; 0]);
        fixture.write(|txn| set(txn, "next life", "value"));
        assert!(!indexes.contains(&index(&fixture)));
        indexes.push(index(&fixture));
    }
}
